//! A command is stopped at a step, another one runs until it ends, and the first one continues: every step of `create-runs` and
//! `process-run` against every command. With `expire`, the lease of the stopped one expires meanwhile.

use std::time::Duration;

use super::campaign::{Campaign, Job};
use super::database::EngineUnderTest;
use super::kill_label::scenarios::Scenario;
use super::kill_label::ways;
use super::options::ENGINES;
use super::stage::Stage;

pub const CAMPAIGN: Campaign = Campaign {
    name: "crossed",
    what: "a command stopped at each step while another one runs to its end",
    engines: &ENGINES,
    run,
};

/// A command that waits this long waits for the stopped one.
const PATIENCE: Duration = Duration::from_millis(400);
/// The scenarios that are stopped.
const STOPPED: [&str; 7] = ["create", "rescue", "rescue-family", "left-over", "drain", "report", "family"];
/// On the servers, one of this many pairs is tried.
const SAMPLE: usize = 6;

#[derive(Clone, Copy, Debug)]
enum Other {
    Queue,
    Plain(&'static [&'static str]),
    /// Expires the lease, then runs this.
    Expire(&'static [&'static str]),
}

const OTHERS: [Other; 8] = [
    Other::Queue,
    Other::Plain(&["create-runs"]),
    Other::Plain(&["process-run", "--drain"]),
    Other::Plain(&["tick"]),
    Other::Plain(&["setting", "set", "TaskQueueRunTimeout", "86400"]),
    Other::Plain(&["status"]),
    Other::Expire(&["create-runs"]),
    Other::Expire(&["tick"]),
];

fn run(job: &Job<'_>) {
    let Some(mut stage) = job.stage() else { return job.note("no server".to_owned()) };
    let pairs = pairs(job, &mut stage);
    let is_full = job.engine == EngineUnderTest::Sqlite || job.options.is_hunt;
    let all = if is_full { pairs.len() } else { pairs.len() / SAMPLE };
    // A stride without a common factor with the number of pairs spreads a sample over all of them.
    let stride = (pairs.len() / 2..).find(|stride| gcd(*stride, pairs.len()) == 1).unwrap();
    let offset = usize::try_from(job.options.seed % pairs.len() as u64).unwrap();
    for trial in job.trials(16, all) {
        let (label, scenario, hit, other) = &pairs[(trial * stride + offset) % pairs.len()];
        let is_fit = job.trial(trial, &mut stage, |stage| {
            let fault = format!("{label}=stop@{hit}");
            job.count(usize::from(cross(stage, scenario, &fault, *other)));
        });
        if !is_fit {
            job.note(format!("{label} of {}, {other:?}", scenario.name));
            stage = job.stage().unwrap();
        }
    }
    job.note(format!("{} pairs", pairs.len()));
}

type Pair = (String, &'static Scenario, usize, Other);

fn pairs(job: &Job<'_>, stage: &mut Stage) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (label, ways) in ways(job, stage) {
        for (scenario, hits) in ways.into_iter().filter(|(scenario, _)| STOPPED.contains(&scenario.name)) {
            pairs.extend(OTHERS.map(|other| (label.clone(), scenario, hits, other)));
        }
    }
    pairs
}

/// Returns whether the first command was really stopped.
fn cross(stage: &Stage, scenario: &Scenario, fault: &str, other: Other) -> bool {
    let mut first = scenario.command(stage).fault(fault).spawn();
    let is_stopped = first.wait_until_stopped();
    if let (true, Other::Expire(_)) = (is_stopped, other) {
        stage.end_leases();
    }
    let mut second = match other {
        Other::Queue => {
            let marker = stage.marker();
            stage.command(&["queue", "note", &format!("{{\"m\":\"{marker}\"}}")]).queues(&marker, 1).spawn()
        }
        Other::Plain(args) | Other::Expire(args) => stage.command(args).spawn(),
    };
    // It may wait for a lock that the first one holds.
    second.has_exited(PATIENCE);
    first.go_on();
    first.wait();
    second.wait();
    is_stopped
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
