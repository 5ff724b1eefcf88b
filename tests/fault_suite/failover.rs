//! A PostgreSQL primary is killed and its synchronous standby is promoted, while runners and callers are active.

use super::campaign::{Campaign, Job};
use super::database::EngineUnderTest;
use super::own_server::open_directory;
use super::server_restart::load_and_break;
use super::stage::Stage;
use super::standby::Pair;

pub const CAMPAIGN: Campaign = Campaign {
    name: "failover",
    what: "a standby takes the place of its primary, under load",
    engines: &[EngineUnderTest::Postgres],
    run,
};

fn run(job: &Job<'_>) {
    if job.worker != 0 {
        return;
    }
    let directory = open_directory("pair-");
    let mut pair = Pair::start(directory.path());
    let address = format!("{}?target_session_attrs=read-write", pair.url());
    let fresh = || {
        let stage = Stage::on_server(job.engine, &job.options.program, &address);
        job.prepare(&stage);
        stage
    };
    let mut stage = fresh();
    for trial in job.trials_of_one_worker(1, 50) {
        let mut rng = job.rng(trial);
        let is_fit = job.trial(trial, &mut stage, |stage| {
            load_and_break(stage, &mut rng, |_| pair.fail_over());
            job.count(1);
        });
        if !is_fit {
            stage = fresh();
        }
    }
}
