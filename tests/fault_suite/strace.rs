//! strace as a source of faults: it counts the system calls of one thread, and kills the program or lets a call fail at
//! one of them.

use std::collections::BTreeMap;
use std::path::Path;

use super::command::Command;
use super::stage::Stage;

/// The system calls of the main thread, by name, in a run without faults. `-D` keeps the PID of the program ours.
pub fn count<'a>(stage: &'a Stage, command: Command<'a>) -> BTreeMap<String, usize> {
    let trace = stage.home().join("trace");
    let call =
        command.under(&["strace", "-D", "-qq", "-o", &text(&trace), "-e", "trace=all", "-e", "signal=none"]).run();
    assert!(call.is_ok(), "under strace: {call:?}");
    // With -D nobody waits for strace itself: its last line says that it is done.
    let mut calls = BTreeMap::new();
    for line in std::fs::read_to_string(&trace).unwrap().lines() {
        let name: String = line.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        if !name.is_empty() && line[name.len()..].starts_with('(') {
            *calls.entry(name).or_default() += 1;
        }
    }
    calls
}

/// The command is killed when its main thread makes the k-th call of this name.
pub fn kill_at<'a>(command: Command<'a>, call: &str, k: usize) -> Command<'a> {
    let (trace, inject) = (format!("trace={call}"), format!("inject={call}:signal=SIGKILL:when={k}"));
    command.under(&["strace", "-D", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject])
}

/// The k-th call of this name fails with this error.
pub fn fail_at<'a>(command: Command<'a>, call: &str, error: &str, k: usize) -> Command<'a> {
    let (trace, inject) = (format!("trace={call}"), format!("inject={call}:error={error}:when={k}"));
    command.under(&["strace", "-D", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject])
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
