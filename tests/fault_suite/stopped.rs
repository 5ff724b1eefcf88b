//! Runners that are stopped until their leases have expired: their runs are rescued on the same host or on another one, and
//! when the runners continue, they are refused.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::campaign::{Campaign, Job};
use super::database::EngineUnderTest;
use super::host::{self, Host, Plan};
use super::options::ENGINES;
use super::pid_reuse::wait_for_handlers;
use super::records::Fate;
use super::rng::Rng;
use super::stage::Stage;

pub const CAMPAIGN: Campaign = Campaign {
    name: "stopped-past-lease",
    what: "runners, some with their handlers, stopped until others have taken their runs",
    engines: &ENGINES,
    run,
};

/// Runners that are stopped in one trial.
const AT_ONCE: usize = 5;
const LEASE_SECS: u32 = 5;

fn run(job: &Job<'_>) {
    for trial in job.trials(2, 10) {
        let Some(mut stage) = job.stage() else { return job.note("no server".to_owned()) };
        let mut rng = job.rng(trial);
        let other = match Host::start(&Plan { name: "rescuer", number: 1, ..Plan::default() }) {
            Ok(host) => host,
            Err(why) => return job.impossible(&why),
        };
        let rescuer = if trial % 2 == 0 { Some(&other) } else { None };
        stage.shorten_leases(LEASE_SECS);
        job.trial(trial, &mut stage, |stage| {
            job.count(stop(stage, rescuer, &mut rng));
            stage.settle_within(Duration::from_secs(60));
        });
    }
}

/// Returns how many were stopped.
fn stop(stage: &Stage, rescuer: Option<&Host>, rng: &mut Rng) -> usize {
    let prefix = rescuer.map(Host::prefix).unwrap_or_default();
    let prefix: Vec<&str> = prefix.iter().map(String::as_str).collect();
    let home = match rescuer {
        Some(_) => stage.other_home("rescuer"),
        None => stage.home().to_owned(),
    };
    let there = |args: &[&str]| {
        let command = stage.command(args).env("HOME", &home.display().to_string());
        if prefix.is_empty() { command.run() } else { command.under(&prefix).run() }
    };
    for _ in 0..AT_ONCE {
        stage.queue("late");
    }
    assert!(there(&["create-runs"]).is_ok());
    let running: Vec<_> = (0..AT_ONCE).map(|_| stage.command(&["process-run"]).spawn()).collect();
    let (runners, handlers) = wait_for_handlers(stage, AT_ONCE);
    let runners: Vec<i32> = runners.iter().map(|pid| pid.parse().unwrap()).collect();
    let handlers: Vec<i32> = handlers.iter().map(|pid| pid.parse().unwrap()).collect();
    stage.broken.borrow_mut().extend(runners.iter().copied().map(i64::from));
    let mut alone = Vec::new();
    for (runner, handler) in runners.iter().zip(&handlers) {
        host::signal(*runner, Signal::STOP);
        if rng.below(2) == 0 {
            host::signal(*handler, Signal::STOP);
        } else {
            alone.push(i64::from(*runner));
        }
    }
    // What a stopped handler does after the rescue cannot be known on another host.
    if rescuer.is_some() {
        stage.may_overlap.borrow_mut().extend(runners.iter().copied().map(i64::from));
    }
    wait_until_rescued(stage, there);
    assert!(there(&["process-run", "--drain"]).is_ok());
    for pid in handlers.iter().chain(&runners) {
        host::signal(*pid, Signal::CONT);
    }
    for runner in running {
        let call = runner.wait();
        assert!(matches!(call.fate, Fate::Exited(0 | 69)), "{call:?}");
    }
    stage.settle_within(Duration::from_secs(60));
    every_late_success_is_an_event(stage, &alone);
    AT_ONCE
}

/// A row that a stopped runner has locked is out of reach, but not forever.
fn wait_until_rescued(stage: &Stage, there: impl Fn(&[&str]) -> super::records::Call) {
    let now = match stage.engine {
        EngineUnderTest::Sqlite => "strftime('%Y-%m-%d %H:%M:%f000', 'now')",
        EngineUnderTest::Postgres => "clock_timestamp()",
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => "UTC_TIMESTAMP(6)",
    };
    let held = "SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'processing'";
    let started = Instant::now();
    while stage.number(&format!("{held} AND \"LeaseExpiresOn\" >= {now}")) > 0 {
        assert!(started.elapsed() < Duration::from_secs(60), "a stopped runner has renewed its lease");
        std::thread::sleep(Duration::from_millis(50));
    }
    while stage.number(held) > 0 {
        let call = there(&["create-runs"]);
        assert!(started.elapsed() < Duration::from_secs(120), "the runs are not rescued: {call:?}");
    }
    let codes = stage.texts("SELECT \"ErrorCode\" AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'timeout'");
    assert_eq!(codes, vec!["lease-expired"; AT_ONCE]);
}

/// Checks handlers that ended while their runner was stopped: the runner reports them too late.
fn every_late_success_is_an_event(stage: &Stage, alone: &[i64]) {
    let records = stage.records();
    for effect in records.effects.iter().filter(|effect| effect.exit_code == Some(0)) {
        let Some(run) = records.runs.iter().find(|run| run.id == effect.run_id) else { continue };
        let is_late = run.status == "timeout" && alone.contains(&run.process_id);
        assert!(!is_late || records.late_runs.contains(&run.id), "run {}: its late success is kept nowhere", run.id);
    }
}
