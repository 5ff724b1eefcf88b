//! Shared by the tests of coprocesses: handlers in Python, and runs for them.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::panic)]

use std::path::Path;
pub(super) use std::time::Duration;

pub(super) use super::*;
pub(super) use crate::config::CoprocessConfig;
pub(super) use crate::handler::Reporter;
pub(super) use crate::handler::active_run::tests::context;
pub(super) use crate::handler::command::{CommandHandler, CommandSource};
pub(super) use taskqueue_domain::limits::confinement::Confinement;
pub(super) use taskqueue_domain::run::ending::ReportedError;
pub(super) use taskqueue_domain::run::exit_rules::ExitRules;
pub(super) use taskqueue_host::net::waker::Waker;
pub(super) use taskqueue_host::testing::eventually;
pub(super) use taskqueue_process::children::capture::Stream;
pub(super) use taskqueue_process::children::child::Control;
pub(super) use taskqueue_process::identities::identity::Liveness;

/// The beginning of every handler in these tests.
pub(super) const PRELUDE: &str = r#"
import json, os, signal, sys, time
def say(**message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
def hear():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)
def hello(n=1, *capabilities):
    if n > 1:
        capabilities += ("cancel",)
    say(type="hello", version=1, capabilities=capabilities, max_in_flight=n)
def runs():
    while True:
        message = hear()
        if message["type"] == "run":
            yield message
        elif message["type"] == "ping":
            say(type="pong")
        elif message["type"] == "drain":
            sys.exit(0)
def done(run, result=None):
    say(type="done", id=run["id"], result=result)
"#;

/// Answers every run with its PID.
pub(super) const TELL_PID: &str = "hello()\nfor run in runs(): done(run, os.getpid())";

pub(super) struct Seen {
    pub(super) handler: Option<ProcessIdentity>,
    pub(super) reports: Vec<String>,
    pub(super) output: Vec<u8>,
    pub(super) control: Control,
    /// Woken after a report.
    pub(super) told: Option<Arc<Waker>>,
}

impl Seen {
    pub(super) fn new() -> Self {
        Self { handler: None, reports: Vec::new(), output: Vec::new(), control: Control::Continue, told: None }
    }

    fn add(&mut self, report: String) {
        // While the run waits for a process, our own heartbeats arrive here; they do not count.
        if self.handler.is_some() {
            self.reports.push(report);
            if let Some(told) = &self.told {
                told.wake();
            }
        }
    }
}

impl Reporter for Seen {
    fn progress(&mut self, percent: i32, message: Option<&str>) {
        self.add(format!("{percent} {}", message.unwrap_or("-")));
    }
    fn results(&mut self, json: &str) {
        self.add(json.to_owned());
    }
    fn heartbeat(&mut self) {
        self.add("alive".to_owned());
    }
}

impl CommandObserver for Seen {
    fn started(&mut self, handler: &ProcessIdentity) {
        self.handler = Some(handler.clone());
    }
    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        assert_eq!(stream, Stream::Stderr);
        self.output.extend_from_slice(bytes);
    }
    fn idle(&mut self) -> Control {
        self.control
    }
}

pub(super) fn handler(script: &str) -> CoprocessHandler {
    let script = format!("{PRELUDE}{script}");
    CoprocessHandler {
        name: "mail.*".to_owned(),
        command: CommandHandler {
            argv: ["python3", "-c", &script].map(str::to_owned).to_vec(),
            source: CommandSource::Configuration,
            cwd: None,
            env: Vec::new(),
            pass_env: Vec::new(),
            confinement: Confinement::default(),
            kill_grace: Duration::from_secs(20),
            output_limit_bytes: 10_000,
        },
        exit_rules: ExitRules::default(),
        config: CoprocessConfig {
            start_timeout: Duration::from_secs(60),
            max_runs: None,
            max_age: None,
            max_rss_bytes: None,
        },
        ping_every: PING_EVERY,
    }
}

pub(super) fn with_grace(script: &str, grace: Duration) -> CoprocessHandler {
    let mut handler = handler(script);
    handler.command.kill_grace = grace;
    handler
}

pub(super) fn run(coprocesses: &Coprocesses, handler: &CoprocessHandler, data: &str) -> (HandlerEnd, Seen) {
    let mut seen = Seen::new();
    let end = coprocesses.run(handler, &context(data), &[], None, &mut seen);
    (end, seen)
}

/// Runs `count` attempts at once, each in its own thread; returns their ends in order.
pub(super) fn run_together(coprocesses: &Coprocesses, handler: &CoprocessHandler, count: usize) -> Vec<HandlerEnd> {
    std::thread::scope(|scope| {
        let start = |number: usize| move || run(coprocesses, handler, &number.to_string()).0;
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(start(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[track_caller]
pub(super) fn pid_of(end: &HandlerEnd) -> i32 {
    assert_eq!((&end.ending, &end.said.error, &end.unended), (&Ending::Exited(0), &None, &None), "{end:?}");
    end.said.results.as_ref().unwrap().parse().unwrap()
}

pub(super) fn is_dead(pid: i32) -> bool {
    ProcessIdentity::of_pid(pid).unwrap().is_none_or(|identity| identity.liveness() == Liveness::Dead)
}

pub(super) fn quoted(path: &Path) -> String {
    format!("{:?}", path.to_str().unwrap())
}
