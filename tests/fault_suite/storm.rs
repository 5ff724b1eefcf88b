//! The cron of many machines strikes at once: 64 overlapping commands, of which a third is killed in the middle.

use std::time::Duration;

use super::campaign::{Campaign, Job};
use super::command::Running;
use super::options::ENGINES;
use super::rng::Rng;
use super::stage::Stage;

pub const CAMPAIGN: Campaign = Campaign {
    name: "storm",
    what: "64 overlapping create-runs and process-run, a third of them killed",
    engines: &ENGINES,
    run,
};

const EACH: usize = 32;
const TASKS: usize = 120;
/// The longest pause before a kill, in microseconds.
const PAUSE_MICROS: usize = 15_000;

fn run(job: &Job<'_>) {
    // One storm at a time: what is to collide are its commands.
    if job.worker != 0 {
        return;
    }
    let Some(mut stage) = job.stage() else { return job.note("no server".to_owned()) };
    for trial in job.trials_of_one_worker(1, 25) {
        let mut rng = job.rng(trial);
        let is_fit = job.trial(trial, &mut stage, |stage| job.count(storm(stage, &mut rng)));
        if !is_fit {
            stage = job.stage().unwrap();
        }
    }
}

/// A batch of so many tasks, every third of them with one limit key.
pub fn brief_lines(marker: &str, count: usize) -> String {
    let line = |number: usize| {
        let key = if number.is_multiple_of(3) { r#","limit_key":"shared""# } else { "" };
        format!("{{\"class\":\"brief\",\"data\":{{\"m\":\"{marker}\"}}{key}}}\n")
    };
    (0..count).map(line).collect()
}

/// Returns how many were killed.
fn storm(stage: &Stage, rng: &mut Rng) -> usize {
    let marker = stage.marker();
    stage.command(&["queue", "--batch", "-"]).stdin(brief_lines(&marker, TASKS)).queues(&marker, TASKS).run();
    let gate = stage.home().join("gate");
    let _ = std::fs::remove_file(&gate);
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let script = format!(": <'{}'; exec \"$@\"", gate.display());
    let start = |args: &[&str]| stage.command(args).under(&["/bin/sh", "-c", &script, "sh"]).spawn();
    let mut all: Vec<Running<'_>> =
        (0..EACH).flat_map(|_| [start(&["create-runs"]), start(&["process-run", "--drain"])]).collect();
    rng.shuffle(&mut all);
    // Stays open until all have ended: who comes late walks through.
    let open = std::fs::File::options().read(true).write(true).open(&gate).unwrap();
    let mut killed = 0;
    for running in all.iter_mut().take(2 * EACH / 3) {
        std::thread::sleep(Duration::from_micros(rng.below(PAUSE_MICROS) as u64));
        killed += usize::from(!running.has_exited(Duration::ZERO));
        running.kill();
    }
    for running in all {
        running.wait();
    }
    drop(open);
    killed
}
