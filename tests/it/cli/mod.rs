//! The command line as a user sees it: output, exit statuses, and the effect on tasks. One file per verb, then what handlers
//! may rely on, then refused input.

mod announcements;
mod any_rows;
mod bad_input;
mod bad_server;
mod bad_store;
mod cancel;
mod certificates;
mod check;
mod claim;
mod claim_chosen;
mod claimants;
mod classes;
mod completions;
mod config_files;
mod coprocess;
mod create_runs;
mod db;
mod dependencies;
mod doctor;
mod edit;
mod events;
mod exec;
mod expires;
mod explain;
mod failures;
mod final_failures;
mod foreign_programs;
mod handlers;
mod handlers_misbehaving;
mod handlers_rights;
mod hidden_runner;
mod hints;
mod init;
mod interrupted;
pub(crate) mod json;
mod keep;
mod kept_log;
mod limits;
mod listing;
mod log_format;
mod logs;
mod man;
mod max_retries;
mod messages;
mod meta;
mod metrics;
mod moved_store;
mod names;
mod output;
pub(crate) mod outside_text;
mod own_queue;
mod pauses;
mod pipes;
mod process_run;
mod progress;
mod queue;
mod reason;
mod retry;
mod runners;
mod schedule;
mod schedule_file;
mod schedule_moves;
mod schedule_overlap;
mod security;
mod selections;
mod settings;
mod shortage;
mod standstill;
mod start;
mod status;
mod status_terminal;
mod status_times;
mod stop_reason;
mod stopping;
mod tags;
mod take_back;
mod task_details;
mod tick;
mod top;
mod trace;
mod transfer;
mod unique;
pub(crate) mod unreadable;
mod untrusted_files;
mod usage;
mod wait;
mod work;
mod work_memory;
mod work_metrics;
mod work_reload;
mod work_service;

use std::path::PathBuf;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Ended, TestDb, wait_until};

/// Queues a task with these options, and returns its id.
pub(crate) fn queue(db: &TestDb, class: &str, more: &[&str]) -> String {
    db.cli().run(&[&["queue", class], more].concat()).ok()
}

/// Queues a batch of these lines.
pub(crate) fn queue_lines(db: &TestDb, lines: &[Value]) -> Ended {
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    db.cli().stdin(text.join("\n")).run(&["queue", "--batch", "-", "--json"])
}

/// Creates the runs of due tasks and processes them.
pub(crate) fn tick(db: &TestDb) {
    let _ = db.cli().run(&["tick"]).ok();
}

/// Returns the number of notices that were not sent yet.
pub(crate) fn count_notices(db: &TestDb) -> i64 {
    db.number("SELECT COUNT(*) AS value FROM \"TaskQueueNotices\"")
}

/// Returns the table of a class whose handler is this shell script. `sh` reads the script: executing the file could fail,
/// because a fork of another test thread may still have it open for writing.
pub(crate) fn shell_class(db: &TestDb, class: &str, script: &str) -> String {
    let path = write(db, &format!("{class}.sh"), script);
    format!("[class.\"{class}\"]\nargv = [\"/bin/sh\", \"{}\"]\n", path.display())
}

/// Writes a file into the home of the test.
pub(crate) fn write(db: &TestDb, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = db.home().join(name);
    std::fs::write(&path, content).unwrap();
    path
}

/// A class `echo` that prints its data.
pub(crate) const ECHO: &str = "[class.echo]\nargv = [\"/bin/cat\"]\n";

/// Returns the output of `status --json ID`.
pub(crate) fn detail(db: &TestDb, id: &str) -> Value {
    db.cli().run(&["status", "--json", id]).json()
}

/// Returns the task in the output of `status --json ID`.
pub(crate) fn task(db: &TestDb, id: &str) -> Value {
    detail(db, id)["task"].clone()
}

/// Returns when the next attempt of this task is due.
pub(crate) fn due_from(task: &Value) -> chrono::DateTime<chrono::FixedOffset> {
    let on = task["next_attempt_on"].as_str().or(task["scheduled_on"].as_str());
    chrono::DateTime::parse_from_rfc3339(on.unwrap()).unwrap()
}

/// Queues a task and processes it.
pub(crate) fn process(db: &TestDb, class: &str, data: &str) -> Value {
    let id = db.cli().run(&["queue", class, data]).ok();
    assert_eq!(db.cli().run(&["tick"]).ok(), "");
    detail(db, &id)
}

/// Returns the number of tasks in the store.
pub(crate) fn count_tasks(db: &TestDb) -> i64 {
    db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\"")
}

/// Returns the output of a handler in the newest run.
pub(crate) fn printed<'a>(detail: &'a Value, stream: &str) -> &'a str {
    let outputs = detail["runs"][0]["outputs"].as_array().unwrap();
    outputs.iter().find(|output| output["stream"] == stream).map_or("", |output| output["content"].as_str().unwrap())
}

/// Sends a signal to a program that the test has started.
pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Returns true if this process is alive (and not a zombie).
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// Waits until a handler has written this file, with a newline at the end, and returns its content.
pub(crate) fn wait_for_file(db: &TestDb, name: &str) -> String {
    let path = db.home().join(name);
    let mut content = String::new();
    wait_until(&format!("a handler writes {name}"), || {
        content = std::fs::read_to_string(&path).unwrap_or_default();
        content.ends_with('\n')
    });
    content.trim_end().to_owned()
}

/// Checks that an error has one `error:` line, at most one `hint:` line, and nothing else. Returns both.
#[track_caller]
pub(crate) fn error_and_hint(stderr: &str) -> (String, String) {
    // The place of a mistake in a file is below the error.
    let mut lines = stderr.lines().filter(|line| !line.starts_with("warning: ") && !line.starts_with("  "));
    let error = lines.next().unwrap_or_default().to_owned();
    let hint = lines.next().unwrap_or_default().to_owned();
    assert!(error.starts_with("error: "), "{stderr}");
    assert!(hint.is_empty() || hint.starts_with("hint: "), "{stderr}");
    assert_eq!(lines.next(), None, "{stderr}");
    (error, hint)
}
