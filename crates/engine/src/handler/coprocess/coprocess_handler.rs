//! A handler that is kept running: how its processes are started, and when they are replaced.

use std::time::Duration;

use crate::config::CoprocessConfig;
use crate::handler::RunContext;
use crate::handler::command::CommandHandler;
use taskqueue_domain::run::ending::Ending;
use taskqueue_domain::run::exit_rules::ExitRules;
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_domain::task::trace::Trace;
use taskqueue_host::random;
use taskqueue_process::children::child::ChildSpec;
use taskqueue_process::identities::identity::ProcessIdentity;
use taskqueue_process::identities::survivors::runner_marker;

/// Set for a program that must use the protocol.
const PROTOCOL_VARIABLE: &str = "TASKQUEUE_PROTOCOL";
/// Variables of a single run, which a coprocess does not get.
const OF_A_RUN: &[&str] = &[
    "TASKQUEUE_TASK_ID",
    "TASKQUEUE_RUN_ID",
    "TASKQUEUE_ATTEMPT",
    "TASKQUEUE_MAX_RETRIES",
    "TASKQUEUE_CLASS",
    "TASKQUEUE_DEADLINE",
    "TASKQUEUE_PLANNED_ON",
    "TASKQUEUE_EVENTS_FD",
    "TASKQUEUE_EVENTS_SOCKET",
];
/// How often a process that sends nothing is pinged.
pub const PING_EVERY: Duration = Duration::from_secs(30);

/// A program that handles a task class and is kept running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoprocessHandler {
    /// The configured class, or the pattern that matches it.
    pub name: String,
    /// How it is started. The output limit applies to the standard error of each run.
    pub command: CommandHandler,
    /// What exit codes mean. An exit before all answers is never a success.
    pub exit_rules: ExitRules,
    /// How long it is kept running.
    pub config: CoprocessConfig,
    /// How often it is pinged; it must answer within the kill grace.
    pub ping_every: Duration,
}

impl CoprocessHandler {
    pub(super) fn program(&self) -> &str {
        self.command.argv.first().map_or("nothing", String::as_str)
    }

    /// Returns the key of the pool for a class: classes share processes unless the command line contains the class.
    pub(super) fn key<'a>(&'a self, class: &'a TaskClass) -> &'a str {
        let names_class = self.command.argv.iter().any(|argument| argument.contains("{class}"));
        if names_class { class } else { &self.name }
    }

    /// Returns what to start for a class. The environment has a token of its own, not that of a run: it distinguishes these
    /// processes from those of other handlers. The identity of the runner in the environment is how a rescue finds them when
    /// the runner has died.
    pub(super) fn child_spec(&self, class: &TaskClass, runner: &ProcessIdentity) -> Result<ChildSpec, Ending> {
        let no_room = |error| Ending::NoRoom(format!("could not start {}: {error}", self.program()));
        let no_run = RunContext {
            task_id: 0,
            run_id: 0,
            attempt: 0,
            max_retries: 0,
            class: class.clone(),
            data: String::new(),
            token: random::token().map_err(no_room)?,
            planned_on: String::new(),
            timeout_secs: 0,
            deadline: String::new(),
            trace: Trace::default(),
        };
        let mut spec = self.command.child_spec(&no_run, None)?;
        let marker = runner_marker(runner);
        let (runner_variable, runner) = marker.split_once('=').unwrap_or_default();
        spec.env.retain(|(name, _)| {
            !OF_A_RUN.iter().chain(&[PROTOCOL_VARIABLE, runner_variable]).any(|variable| name == variable)
        });
        spec.env.push((PROTOCOL_VARIABLE.into(), "coprocess".into()));
        spec.env.push((runner_variable.into(), runner.into()));
        Ok(spec)
    }
}
