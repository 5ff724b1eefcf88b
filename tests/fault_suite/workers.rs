//! Workers that claim far ahead of their slots, with coprocesses that have several runs in flight, together with handlers that
//! are started for each run. Workers and coprocesses are killed at random, and others replace them.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use super::campaign::{Campaign, Job};
use super::command::Running;
use super::handlers;
use super::host;
use super::leftovers;
use super::options::ENGINES;
use super::rng::Rng;
use super::stage::Stage;

pub const CAMPAIGN: Campaign = Campaign {
    name: "workers",
    what: "workers with runs claimed far ahead, and their coprocesses with several runs each, killed at random",
    engines: &ENGINES,
    run,
};

/// Trials at the same time: with more, runs take too long for claiming ahead.
const AT_ONCE: usize = 2;
/// Tasks in one trial. A server on a busy disk needs time for each transaction.
const TASKS: usize = 120;
const STRIKES: usize = 6;
/// Both fit under the limit.
const WORK: &[&str] = &["work", "--slots", "4", "--idle-exit", "0s"];
const WORKERS: usize = 2;
/// The largest number of log lines between two kills, and how long they are waited for.
const LINES: usize = 40;
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs that were released at no cost, on the current engine.
static ONLY_CLAIMED: AtomicI64 = AtomicI64::new(0);

fn run(job: &Job<'_>) {
    if job.worker < AT_ONCE {
        strike_all(job);
    }
    if job.is_last_worker() {
        job.note(format!("{} runs were only claimed", ONLY_CLAIMED.swap(0, Ordering::SeqCst)));
    }
}

fn strike_all(job: &Job<'_>) {
    let Some(mut stage) = job.stage() else { return job.note("no server".to_owned()) };
    for trial in job.share(4, 60, job.worker, AT_ONCE) {
        let mut rng = job.rng(trial);
        let is_fit = job.trial(trial, &mut stage, |stage| {
            job.count(strike(stage, &mut rng));
            stage.settle();
            let only_claimed = stage.records().runs.iter().filter(|run| run.error_code == "claimed-ahead").count();
            ONLY_CLAIMED.fetch_add(i64::try_from(only_claimed).unwrap(), Ordering::SeqCst);
        });
        if !is_fit {
            stage = job.stage().unwrap();
        }
    }
}

/// Queues many short tasks, so that the workers claim ahead, then some that are in flight together.
fn queue(stage: &Stage) {
    let marker = stage.marker();
    let class = |number: usize| match number % 40 {
        0..30 => "kept",
        39 => "brief",
        _ => "several",
    };
    // No two have the same data.
    let line =
        |number: usize| format!("{{\"class\":\"{}\",\"data\":{{\"m\":\"{marker}\",\"n\":{number}}}}}\n", class(number));
    let lines = (0..TASKS).map(line).collect();
    let call = stage.command(&["queue", "--batch", "-"]).stdin(lines).queues(&marker, TASKS).run();
    assert!(call.is_ok(), "{call:?}");
}

/// Returns how many workers and coprocesses were killed.
fn strike(stage: &Stage, rng: &mut Rng) -> usize {
    queue(stage);
    let mut workers: Vec<Running<'_>> = (0..WORKERS).map(|_| stage.command(WORK).spawn()).collect();
    let mut killed = 0;
    for _ in 0..STRIKES {
        wait_for_lines(stage, rng.below(LINES));
        let at = rng.below(WORKERS);
        if workers[at].has_exited(Duration::ZERO) {
            break;
        }
        let coprocesses = coprocesses_of(stage, &workers[at]);
        if !coprocesses.is_empty() && rng.below(2) == 0 {
            host::signal(*rng.pick(&coprocesses), rustix::process::Signal::KILL);
        } else {
            workers[at].kill();
            let next = stage.command(WORK).spawn();
            std::mem::replace(&mut workers[at], next).wait();
        }
        killed += 1;
    }
    for worker in workers {
        worker.wait();
    }
    killed
}

/// Returns the coprocesses that have begun a run. A process that ends before its hello could not be started, so that its class
/// would be held.
fn coprocesses_of(stage: &Stage, worker: &Running<'_>) -> Vec<i32> {
    let effects = handlers::read(stage.home(), 0);
    let has_begun = |pid: &i32| effects.iter().any(|effect| effect.pid == i64::from(*pid));
    leftovers::coprocesses_of(worker.pid()).into_iter().filter(has_begun).collect()
}

/// Waits for this many more lines; on a slow machine not for long.
fn wait_for_lines(stage: &Stage, count: usize) {
    let lines = || handlers::read(stage.home(), 0).len();
    let (before, started) = (lines(), Instant::now());
    while lines() < before + count && started.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}
