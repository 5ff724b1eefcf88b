//! System calls that fail: a full or broken disk under the store and the spool, no descriptors, no processes. On the servers, a
//! connection that is cut while an answer is read, so that the result of a COMMIT is unknown.

use super::campaign::{Campaign, Job};
use super::database::EngineUnderTest;
use super::kill_label::scenarios::Scenario;
use super::options::ENGINES;
use super::stage::Stage;
use super::strace;

pub const CAMPAIGN: Campaign = Campaign {
    name: "syscall-errors",
    what: "ENOSPC, EIO, EMFILE, EAGAIN at every call; connections cut at every answer",
    engines: &ENGINES,
    run,
};

const LOCAL: [(&str, &str); 12] = [
    ("pwrite64", "ENOSPC"),
    ("pwrite64", "EIO"),
    ("write", "ENOSPC"),
    ("write", "EIO"),
    ("fsync", "EIO"),
    ("fdatasync", "EIO"),
    ("fdatasync", "ENOSPC"),
    ("ftruncate", "EIO"),
    ("openat", "EMFILE"),
    ("openat", "ENOMEM"),
    ("clone", "EAGAIN"),
    ("clone3", "EAGAIN"),
];
// Only reads: after a failed write a client waits for data from the server, and here there is none.
const REMOTE: [(&str, &str); 2] = [("recvfrom", "ECONNRESET"), ("read", "ECONNRESET")];
const COMMANDS: [&str; 6] = ["queue", "batch", "create", "rescue", "process", "report"];

/// A call of a command, and how it fails.
#[derive(Clone, Debug)]
struct Case {
    command: &'static str,
    call: &'static str,
    error: &'static str,
    k: usize,
}

fn run(job: &Job<'_>) {
    let Some(mut stage) = job.stage() else { return job.note("no server".to_owned()) };
    let cases = cases(&mut stage);
    // On the servers the ways to fail are similar.
    let (quick, all) = if job.engine == EngineUnderTest::Sqlite { (24, cases.len()) } else { (12, cases.len()) };
    let offset = usize::try_from(job.options.seed % 1_000).unwrap();
    for trial in job.trials(quick, all) {
        let at = if job.options.all { trial } else { trial * cases.len() / quick + offset };
        let case = &cases[at % cases.len()];
        let is_fit = job.trial(trial, &mut stage, |stage| {
            let command = Scenario::named(case.command).command(stage);
            stage.may_fail.set(true);
            strace::fail_at(command, case.call, case.error, case.k).run();
            job.count(1);
        });
        if !is_fit {
            job.note(format!("{case:?}"));
            stage = job.stage().unwrap();
        }
    }
}

fn cases(stage: &mut Stage) -> Vec<Case> {
    let mut cases = Vec::new();
    stage.begin_trial();
    let kinds: &[(&str, &str)] = if stage.engine == EngineUnderTest::Sqlite { &LOCAL } else { &REMOTE };
    for command in COMMANDS {
        let counts = strace::count(stage, Scenario::named(command).command(stage));
        stage.settle();
        for (call, error) in kinds {
            let count = counts.get(*call).copied().unwrap_or(0);
            cases.extend((1..=count).map(|k| Case { command, call, error, k }));
        }
    }
    cases
}
