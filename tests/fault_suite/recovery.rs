//! Not a separate kind of fault: measures the time from the kill of a runner to the start of the next attempt, and how many
//! calls of `create-runs` that takes.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::campaign::{Campaign, Job};
use super::handlers;
use super::options::ENGINES;
use super::stage::Stage;
use super::wait::wait_until;

pub const CAMPAIGN: Campaign = Campaign {
    name: "recovery",
    what: "from the kill of a runner to the start of the next attempt, measured",
    engines: &ENGINES,
    run,
};

/// Calls and milliseconds of every trial on the current engine.
static MEASURED: Mutex<Vec<(usize, u128)>> = Mutex::new(Vec::new());

fn run(job: &Job<'_>) {
    // Without other trials at the same time.
    if job.worker != 0 {
        return;
    }
    let Some(mut stage) = job.stage() else { return job.note("no server".to_owned()) };
    MEASURED.lock().unwrap_or_else(PoisonError::into_inner).clear();
    for trial in job.trials_of_one_worker(5, 50) {
        let is_fit = job.trial(trial, &mut stage, |stage| {
            let measured = recover(stage);
            MEASURED.lock().unwrap_or_else(PoisonError::into_inner).push(measured);
            job.count(1);
        });
        if !is_fit {
            stage = job.stage().unwrap();
        }
    }
    let mut measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    measured.sort_unstable();
    let calls: Vec<usize> = measured.iter().map(|(calls, _)| *calls).collect();
    let mut millis: Vec<u128> = measured.iter().map(|(_, millis)| *millis).collect();
    millis.sort_unstable();
    if let (Some(calls_most), Some(millis_most)) = (calls.last(), millis.last()) {
        let (calls, millis) = (calls[calls.len() / 2], millis[millis.len() / 2]);
        job.note(format!("median {calls} create-runs, {millis} ms; at most {calls_most}, {millis_most} ms"));
    }
}

/// Returns the calls of `create-runs`, and milliseconds.
fn recover(stage: &Stage) -> (usize, u128) {
    let task = stage.queue("hang-once");
    assert!(stage.command(&["create-runs"]).run().is_ok());
    let mut runner = stage.command(&["process-run"]).spawn();
    let starts = || {
        let effects = handlers::read(stage.home(), 0);
        effects.iter().filter(|effect| effect.is_start && effect.task_id == task).count()
    };
    wait_until("the handler has begun", || starts() == 1);
    runner.kill();
    let killed = Instant::now();
    runner.wait();
    for calls in 1.. {
        assert!(stage.command(&["create-runs"]).run().is_ok());
        let next = stage.command(&["process-run"]).spawn();
        let asked = Instant::now();
        while starts() < 2 && asked.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let took = killed.elapsed().as_millis();
        next.wait();
        if starts() == 2 {
            return (calls, took);
        }
        assert!(calls < 10, "no next attempt after {calls} calls of create-runs");
    }
    unreachable!()
}
