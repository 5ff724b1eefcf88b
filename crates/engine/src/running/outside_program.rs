//! Runs a program of the configuration that is no handler: a hook, a notifier, or one that says whether a class exists.

use crate::handler::command::{CommandHandler, CommandObserver};
use crate::handler::{Reporter, RunContext};
use crate::{EngineResult, new_token};
use taskqueue_domain::run::ending::Ending;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_process::children::child::Control;
use taskqueue_process::identities::identity::ProcessIdentity;

/// What such a program gets.
pub(crate) struct Call<'a> {
    /// Takes the place of `{class}` in its arguments.
    pub(crate) class: TaskClass,
    pub(crate) task_id: TaskId,
    pub(crate) run_id: RunId,
    /// Its standard input.
    pub(crate) input: &'a str,
    /// How long it may take.
    pub(crate) limit_secs: i64,
}

impl Call<'_> {
    /// Runs it as a handler is run: a clean environment, the input, a limit. Returns why it did not succeed, if so.
    pub(crate) fn run(self, command: &CommandHandler) -> EngineResult<Option<String>> {
        let context = RunContext {
            task_id: self.task_id.0,
            run_id: self.run_id.0,
            attempt: 1,
            max_retries: 0,
            class: self.class,
            data: self.input.to_owned(),
            // Not that of the run: its processes are not the run's.
            token: new_token()?,
            planned_on: String::new(),
            timeout_secs: self.limit_secs,
            deadline: String::new(),
        };
        let program = command.argv.first().map_or("", String::as_str);
        let end = command.run(&context, &[], None, &mut Unheard);
        let stderr = end.stderr.to_text();
        let last_line = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let said = if last_line.is_empty() { String::new() } else { format!(": {last_line}") };
        Ok(match end.ending {
            Ending::Exited(0) => None,
            Ending::Exited(code) => Some(format!("{program} exited with {code}{said}")),
            Ending::TimedOut => Some(format!("{program} took longer than {} seconds", self.limit_secs)),
            Ending::CouldNotStart(why) | Ending::NoRoom(why) | Ending::Misconfigured(why) => Some(why),
            Ending::Signalled(_)
            | Ending::Killed { .. }
            | Ending::Stopped
            | Ending::Cancelled(_)
            | Ending::KilledWithAnother(_) => Some(format!("{program} was ended by a signal{said}")),
        })
    }
}

/// Ignores what such a program reports.
struct Unheard;

impl Reporter for Unheard {
    fn progress(&mut self, _percent: i32, _message: Option<&str>) {}

    fn results(&mut self, _json: &str) {}
}

impl CommandObserver for Unheard {
    fn started(&mut self, _handler: &ProcessIdentity) {}

    fn idle(&mut self) -> Control {
        Control::Continue
    }
}
