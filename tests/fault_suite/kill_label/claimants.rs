//! Claimants: what they say is struck by the fault, and then their process dies, so that nothing waits for their deadline.

use std::process::{Child, Stdio};

use crate::command::Command;
use crate::records::Call;
use crate::stage::Stage;

/// What a claimant says.
#[derive(Clone, Copy, Debug)]
pub enum Word {
    Claim,
    Heartbeat,
    Message,
    Resolve,
    /// And asks for more afterwards: what it has rejected must not come back.
    Release,
    /// An operator takes its run from it.
    TakeBack,
}

/// Says it, with a fault or a log, once the claimant has what it speaks of.
pub fn speak<'a>(stage: &'a Stage, word: Word, strike: impl Fn(Command<'a>) -> Command<'a>) -> Call {
    let process = Process::start();
    let (name, pid) = (format!("claimant-{}", stage.marker()), process.0.id().to_string());
    let claim = |count: &str| {
        stage
            .command(&["claim", "--claimant", &name, "--process", &pid, "--count", count])
            .env("TASKQUEUE_CLAIMANT", &name)
    };
    if matches!(word, Word::Claim) {
        // The first of the runs is created by the claim itself.
        return strike(claim("2")).run();
    }
    clean(stage);
    let claimed = claim("1").run();
    assert!(claimed.is_ok(), "{claimed:?}");
    let line: serde_json::Value = serde_json::from_str(&claimed.stdout).unwrap();
    let (run, token) = (line["run_id"].to_string(), line["token"].as_str().unwrap().to_owned());
    // What fails by design must not succeed here.
    let is_doomed = line["class"] == "fail";
    let words: &[&str] = match word {
        Word::Heartbeat => &["progress", &run, "50", "--token", &token],
        Word::Message => &["message", &run, "note", "--token", &token],
        Word::Resolve if is_doomed => &["resolve", &run, "--token", &token, "--error", "failed"],
        Word::Resolve => &["resolve", &run, "--token", &token, "--results", "1"],
        Word::TakeBack => &["release", &run, "--force", "--reason", "it is gone"],
        Word::Claim | Word::Release => &["release", &run, "--token", &token],
    };
    let call = strike(stage.command(words)).run();
    if matches!(word, Word::Release) {
        // Something else for it to take, whatever was left before.
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
