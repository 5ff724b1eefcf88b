//! Runs a configured program that is no handler: a hook, a notifier, or a check whether a class exists.

use crate::context::new_token;
use crate::error::EngineResult;
use crate::handler::RunContext;
use crate::handler::command::{CommandHandler, Printer};
use taskqueue_domain::run::ending::Ending;
use taskqueue_domain::run::exit_rules::ExitRules;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_domain::task::trace::Trace;

/// The input of such a program.
pub(crate) struct ProgramCall<'a> {
    /// Replaces `{class}` in its arguments.
    pub(crate) class: TaskClass,
    pub(crate) task_id: TaskId,
    pub(crate) run_id: RunId,
    /// Its standard input.
    pub(crate) input: &'a str,
    /// Its timeout in seconds.
    pub(crate) limit_secs: i64,
}

impl ProgramCall<'_> {
    /// Runs the program like a handler: a clean environment, the input, and a timeout. Returns why it failed, if it did.
    pub(crate) fn run(self, command: &CommandHandler) -> EngineResult<Option<String>> {
        let context = RunContext {
            task_id: self.task_id.0,
            run_id: self.run_id.0,
            attempt: 1,
            max_retries: 0,
            class: self.class,
            data: self.input.to_owned(),
            // A new token, because its processes do not belong to the run.
            token: new_token()?,
            planned_on: String::new(),
            timeout_secs: self.limit_secs,
            deadline: String::new(),
            trace: Trace::default(),
        };
        let program = command.argv.first().map_or("", String::as_str);
        let end = command.run(&ExitRules::default(), &context, &[], None, &mut Printer(&mut |_, _| {}));
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
