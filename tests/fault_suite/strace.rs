//! strace as a source of faults: it counts the system calls of one thread, and kills the program or makes a call fail at one of
//! them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::command::Command;
use super::records::{Call, Fate};
use super::stage::Stage;

/// Returns the system calls of the main thread, by name, in a run without faults. With `-D`, the program keeps its PID.
pub fn count<'a>(stage: &'a Stage, command: Command<'a>) -> BTreeMap<String, usize> {
    let trace = stage.home().join("trace");
    let call =
        command.under(&["strace", "-D", "-qq", "-o", &text(&trace), "-e", "trace=all", "-e", "signal=none"]).run();
    assert!(call.is_ok(), "under strace: {call:?}");
    read(&trace)
}

fn read(trace: &Path) -> BTreeMap<String, usize> {
    let mut calls = BTreeMap::new();
    for line in std::fs::read_to_string(trace).unwrap().lines() {
        let name: String = line.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        if !name.is_empty() && line[name.len()..].starts_with('(') {
            *calls.entry(name).or_default() += 1;
        }
    }
    calls
}

/// Like `count`, for the lease thread.
pub fn count_in_lease_thread(stage: &Stage, command: Command<'_>) -> BTreeMap<String, usize> {
    let trace = stage.home().join("trace-of-thread");
    let call = with_lease_thread(command, &["-o", &text(&trace), "-e", "trace=all", "-e", "signal=none"]);
    assert!(call.is_ok(), "under strace: {call:?}");
    read(&trace)
}

/// Kills the command when the lease thread makes the k-th call of this name.
pub fn kill_in_lease_thread(command: Command<'_>, call: &str, k: usize) -> Call {
    let (trace, inject) = (format!("trace={call}"), format!("inject={call}:signal=SIGKILL:when={k}"));
    with_lease_thread(command, &["-o", "/dev/null", "-e", &trace, "-e", &inject])
}

/// Stops the program where the thread begins, so that strace can attach to it.
fn with_lease_thread(command: Command<'_>, options: &[&str]) -> Call {
    let mut running = command.fault("lease.thread_started=stop").spawn();
    assert!(running.wait_until_stopped(), "the lease thread never began");
    let thread = lease_thread_of(running.pid());
    let mut strace = std::process::Command::new("strace")
        .args(["-qq", "-p", &thread.to_string()])
        .args(options)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/task/{thread}/status", running.pid());
    let started = Instant::now();
    while std::fs::read_to_string(&status).is_ok_and(|status| status.contains("TracerPid:\t0\n")) {
        assert!(started.elapsed() < Duration::from_secs(30), "strace did not take hold of the thread");
        std::thread::sleep(Duration::from_millis(1));
    }
    running.go_on();
    let mut call = running.wait();
    strace.wait().unwrap();
    // The label is where it was stopped, not where it died.
    if matches!(call.fate, Fate::Killed(_)) {
        call.fate = Fate::Killed(None);
    }
    call
}

fn lease_thread_of(pid: i32) -> i32 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let is_it = |path: &Path| std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "leases");
    let found = tasks.map(|task| task.path()).find(|path| is_it(path)).unwrap();
    found.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

/// Kills the command when its main thread makes the k-th call of this name.
pub fn kill_at<'a>(command: Command<'a>, call: &str, k: usize) -> Command<'a> {
    let (trace, inject) = (format!("trace={call}"), format!("inject={call}:signal=SIGKILL:when={k}"));
    command.under(&["strace", "-D", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject])
}

/// Makes the k-th call of this name fail with this error.
pub fn fail_at<'a>(command: Command<'a>, call: &str, error: &str, k: usize) -> Command<'a> {
    let (trace, inject) = (format!("trace={call}"), format!("inject={call}:error={error}:when={k}"));
    command.under(&["strace", "-D", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject])
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
