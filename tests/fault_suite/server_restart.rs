//! A server is killed, or stopped, and restarted, while several runners have 64 tasks in progress and others queue.

use std::time::Duration;

use super::campaign::{Campaign, Job};
use super::crowd::Crowd;
use super::database::EngineUnderTest;
use super::own_server::OwnServer;
use super::rng::Rng;
use super::stage::Stage;
use super::storm::brief_lines;

pub const CAMPAIGN: Campaign = Campaign {
    name: "server-restart",
    what: "a server killed or stopped under load, and started again",
    engines: &[EngineUnderTest::Postgres, EngineUnderTest::Mariadb, EngineUnderTest::Mysql],
    run,
};

const TASKS: usize = 64;
const RUNNERS: usize = 8;
const TO_REST: Duration = Duration::from_secs(90);

fn run(job: &Job<'_>) {
    if job.worker != 0 {
        return;
    }
    let server = OwnServer::start(job.engine);
    let fresh = || {
        let stage = Stage::on_server(job.engine, &job.options.program, &server.url);
        job.prepare(&stage);
        stage
    };
    let mut stage = fresh();
    for trial in job.trials_of_one_worker(1, 30) {
        let mut rng = job.rng(trial);
        let is_fit = job.trial(trial, &mut stage, |stage| {
            load_and_break(stage, &mut rng, |rng| {
                if rng.below(4) == 0 {
                    server.halt();
                } else {
                    server.kill();
                }
                server.again();
            });
            job.count(1);
        });
        if !is_fit {
            stage = fresh();
        }
    }
}

/// Runners and callers at work, a fault, more callers, then the completion of all work.
pub fn load_and_break(stage: &Stage, rng: &mut Rng, fault: impl FnOnce(&mut Rng)) {
    stage.may_fail.set(true);
    stage.outcomes_are_kept.set(true);
    let marker = stage.marker();
    let lines = brief_lines(&marker, TASKS);
    assert!(stage.command(&["queue", "--batch", "-"]).stdin(lines).queues(&marker, TASKS).run().is_ok());
    assert!(stage.command(&["create-runs"]).run().is_ok());
    let mut crowd = Crowd::default();
    for _ in 0..RUNNERS {
        crowd.start(stage.command(&["process-run", "--drain"]));
    }
    let markers: Vec<String> = (0..12).map(|_| stage.marker()).collect();
    let queue = |marker: &String| {
        let data = format!("{{\"m\":\"{marker}\"}}");
        stage.command(&["queue", "note", &data]).queues(marker, 1)
    };
    let (before, after) = markers.split_at(6);
    for marker in before {
        crowd.start(queue(marker));
        std::thread::sleep(Duration::from_millis(rng.below(40) as u64));
    }
    crowd.start(stage.command(&["create-runs"]));
    // Some arrive while it is down, some when it is up again.
    after[..3].iter().for_each(|marker| crowd.start(queue(marker)));
    fault(rng);
    after[3..].iter().for_each(|marker| crowd.start(queue(marker)));
    crowd.start(stage.command(&["tick"]));
    crowd.wait();
    stage.reconnect();
    stage.settle_within(TO_REST);
}
