//! Cron starts on many machines at once, together with some workers: 64 overlapping commands, of which a third is killed, while
//! claimants work and users change tasks of every kind.

use std::time::{Duration, Instant};

use super::campaign::{Campaign, Job};
use super::command::Running;
use super::crowd::Crowd;
use super::load::{Load, Paused};
use super::options::ENGINES;
use super::rng::Rng;
use super::stage::Stage;

pub const CAMPAIGN: Campaign = Campaign {
    name: "storm",
    what: "64 overlapping create-runs, process-run and work, a third of them killed, among claimants and changed minds",
    engines: &ENGINES,
    run,
};

const EACH: usize = 32;
const DRAIN: &[&str] = &["process-run", "--drain"];
const WORK: &[&str] = &["work", "--slots", "2", "--idle-exit", "0s"];
const TASKS: usize = 120;
/// The longest pause before a kill, in microseconds.
const PAUSE_MICROS: usize = 15_000;
/// At most this long: if a run takes longer than the second for which it was planned, no runner is ever idle.
const SCHEDULE_LASTS: Duration = Duration::from_secs(20);
/// Rates and delays take seconds.
const TO_REST: Duration = Duration::from_secs(60);

fn run(job: &Job<'_>) {
    // One storm at a time, because its commands must collide.
    if job.worker != 0 {
        return;
    }
    let Some(mut stage) = job.stage() else { return job.note("no server".to_owned()) };
    for trial in job.trials_of_one_worker(1, 18) {
        let mut rng = job.rng(trial);
        let is_fit = job.trial(trial, &mut stage, |stage| {
            job.count(storm(stage, &mut rng));
            stage.settle_within(TO_REST);
        });
        if !is_fit {
            stage = job.stage().unwrap();
        }
    }
}

/// Returns a batch of this many tasks: every third with one limit key, every seventh before the others, every twentieth a
/// second later, and of every ten some that wait for the first of them.
pub fn brief_lines(marker: &str, count: usize) -> String {
    let line = |number: usize| {
        let mut more = String::new();
        if number.is_multiple_of(3) {
            more += r#","limit_key":"shared""#;
        }
        if number.is_multiple_of(7) {
            more += r#","priority":5"#;
        }
        if number % 20 == 19 {
            more += r#","in":"1s""#;
        }
        match number % 10 {
            0 => more += &format!(r#","name":"{number}""#),
            4 | 8 => more += &format!(r#","after":["{}"]"#, number - number % 10),
            _ => {}
        }
        format!("{{\"class\":\"brief\",\"data\":{{\"m\":\"{marker}\"}}{more}}}\n")
    };
    (0..count).map(line).collect()
}

/// Returns how many were killed.
fn storm(stage: &Stage, rng: &mut Rng) -> usize {
    let load = Load::queue(stage, TASKS);
    let gate = stage.home().join("gate");
    let _ = std::fs::remove_file(&gate);
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let script = format!(": <'{}'; exec \"$@\"", gate.display());
    let start = |args: &[&str]| stage.command(args).under(&["/bin/sh", "-c", &script, "sh"]).spawn();
    // Before any of them begins, so that every command that ends during the pause has seen it.
    let paused = Paused::begin(stage, &["pause", "--class", "note"]);
    let mut all: Vec<Running<'_>> =
        (0..EACH).flat_map(|nth| [start(&["create-runs"]), start(if nth % 4 == 0 { WORK } else { DRAIN })]).collect();
    rng.shuffle(&mut all);
    // Stays open until all have ended, so that late commands are not blocked.
    let open = std::fs::File::options().read(true).write(true).open(&gate).unwrap();
    let mut killed = 0;
    let mut crowd = Crowd::default();
    for (nth, running) in all.iter_mut().take(2 * EACH / 3).enumerate() {
        std::thread::sleep(Duration::from_micros(rng.below(PAUSE_MICROS) as u64));
        if nth % 2 == 0 {
            load.change(&mut crowd, nth / 2, rng);
        }
        killed += usize::from(!running.has_exited(Duration::ZERO));
        running.kill();
    }
    if rng.below(4) == 0 {
        let drained = Paused::begin(stage, &["drain", "--all"]);
        stage.command(&["process-run"]).run();
        drained.end();
    }
    let late = all.split_off(if rng.below(2) == 0 { EACH } else { all.len() });
    let until = Instant::now() + SCHEDULE_LASTS;
    for running in &mut all {
        running.has_exited(until.saturating_duration_since(Instant::now()));
    }
    load.end();
    for running in all {
        running.wait();
    }
    paused.end();
    for running in late {
        running.wait();
    }
    crowd.wait();
    drop(open);
    killed
}
