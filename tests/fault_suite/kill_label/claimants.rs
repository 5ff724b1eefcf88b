//! Claimants: the fault hits a report, and then the process of the claimant dies, so that nothing waits for its deadline.

use std::process::{Child, Stdio};

use crate::command::Command;
use crate::records::Call;
use crate::stage::Stage;

/// A report of a claimant.
#[derive(Clone, Copy, Debug)]
pub enum Word {
    Claim,
    Heartbeat,
    Message,
    Resolve,
    /// It claims again afterwards: a rejected task must not come back.
    Release,
    /// An operator takes its run from it.
    TakeBack,
}

/// Makes the report, with a fault or a log, after the claimant has claimed its run.
pub fn speak<'a>(stage: &'a Stage, word: Word, strike: impl Fn(Command<'a>) -> Command<'a>) -> Call {
    let process = Process::start();
    let (name, pid) = (format!("claimant-{}", stage.marker()), process.0.id().to_string());
    let claim = |count: &str| {
        stage
            .command(&["worker", "claim", "--claimant", &name, "--process", &pid, "--count", count])
            .env("TASKQUEUE_CLAIMANT", &name)
    };
    if matches!(word, Word::Claim) {
        // The claim itself creates the first of the runs.
        return strike(claim("2")).run();
    }
    clean(stage);
    let claimed = claim("1").run();
    assert!(claimed.is_ok(), "{claimed:?}");
    let line: serde_json::Value = serde_json::from_str(&claimed.stdout).unwrap();
    let (run, token) = (line["run_id"].to_string(), line["token"].as_str().unwrap().to_owned());
    // A task that fails by design must not succeed here.
    let is_doomed = line["class"] == "fail";
    let words: &[&str] = match word {
        Word::Heartbeat => &["report", "progress", &run, "50", "--token", &token],
        Word::Message => &["report", "message", &run, "note", "--token", &token],
        Word::Resolve if is_doomed => &["worker", "resolve", &run, "--token", &token, "--error", "failed"],
        Word::Resolve => &["worker", "resolve", &run, "--token", &token, "--results", "1"],
        Word::TakeBack => &["worker", "release", &run, "--force", "--reason", "it is gone"],
        Word::Claim | Word::Release => &["worker", "release", &run, "--token", &token],
    };
    let call = strike(stage.command(words)).run();
    if matches!(word, Word::Release) {
        // Another task for it to claim, whatever was left before.
        stage.queue("brief");
        clean(stage);
        let more = claim("9").run();
        assert!(more.is_ok(), "{more:?}");
    }
    call
}

fn clean(stage: &Stage) {
    let created = stage.command(&["create-runs"]).run();
    assert!(created.is_ok(), "{created:?}");
}

/// A process that lives as long as this value.
struct Process(Child);

impl Process {
    fn start() -> Self {
        let mut command = std::process::Command::new("/bin/sleep");
        Self(command.arg("600").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
