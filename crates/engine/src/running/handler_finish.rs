//! How the handler of a run finished, for every kind of handler, and the decision that follows. Writes nothing.

use crate::handler::HandlerError;
use crate::handler::events::Said;
use crate::handler::handlers::Handlers;
use crate::me::Me;
use taskqueue_domain::run::backoff::possible_delay_secs;
use taskqueue_domain::run::decision::{Decision, decide};
use taskqueue_domain::run::ending::{Ending, ReportedError};
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::run::usage::Usage;
use taskqueue_domain::task::records::{ClaimedRun, RunOutput};
use taskqueue_process::children::child::{Captured, Stream};
use taskqueue_store::NewEvent;

/// How a handler finished, for every kind of handler.
#[derive(Default)]
pub(crate) struct HandlerFinish {
    pub(crate) ending: Option<Ending>,
    pub(crate) said: Said,
    pub(crate) stdout: Captured,
    pub(crate) stderr: Captured,
    /// What its program used.
    pub(crate) usage: Option<Usage>,
    pub(crate) unended: Option<String>,
    /// Whether its thread was left behind.
    pub(crate) is_left_behind: bool,
}

impl HandlerFinish {
    pub(crate) fn of(ending: Ending) -> Self {
        Self { ending: Some(ending), ..Self::default() }
    }

    pub(crate) fn could_not_start(why: &str) -> Self {
        Self::of(Ending::CouldNotStart(why.to_owned()))
    }

    pub(crate) fn misconfigured(why: String) -> Self {
        Self::of(Ending::Misconfigured(why))
    }

    pub(crate) fn reported(error: &HandlerError) -> Self {
        let error = ReportedError {
            code: error.code.clone(),
            message: error.message.clone(),
            retry: Some(error.retry),
            // The field is public, so a handler may have set an impossible value.
            delay_secs: error.delay_secs.map(possible_delay_secs),
        };
        Self { said: Said { error: Some(error), ..Said::default() }, ..Self::default() }
    }

    pub(crate) fn decision(&self, handlers: &Handlers, run: &ClaimedRun, timeout_secs: i64) -> Decision {
        let decision = match (&self.ending, &self.said.error) {
            (Some(ending), error) => {
                let stderr = self.stderr.to_text();
                let last_line = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
                decide(ending, error.as_ref(), last_line, &handlers.exit_rules(&run.class), timeout_secs)
            }
            (None, Some(error)) => Decision::reported(error),
            (None, None) => Decision::returned(),
        };
        let decision = decision.with_unread_events(self.said.unread).with_unknown_keys(&self.said.unknown_keys);
        if self.is_left_behind { decision.with_thread_left_behind() } else { decision }
    }

    /// Returns an event about unreadable lines, to be stored with the end.
    pub(crate) fn notes(&self, me: &Me, run: &ClaimedRun) -> Vec<NewEvent> {
        let first = self.said.first_unread.as_ref();
        let details = first.map(|first| serde_json::json!({ "count": self.said.unread, "first": first }));
        let note = details.map(|details| me.event_of_run("unreadable-line", run.task_id, run.run_id, details));
        note.into_iter().collect()
    }

    pub(crate) fn exit_code(&self, decision: &Decision) -> u8 {
        match &self.ending {
            // A handler that reports an error has failed, whatever its exit code.
            Some(Ending::Exited(0)) => u8::from(decision.event != RunEvent::Succeed),
            Some(Ending::Exited(code)) => u8::try_from(*code).unwrap_or(1),
            Some(Ending::Signalled(signal) | Ending::Killed { signal, .. }) => u8::try_from(128 + signal).unwrap_or(1),
            Some(Ending::TimedOut) => 124,
            Some(Ending::CouldNotStart(_) | Ending::Misconfigured(_)) => 127,
            // EX_TEMPFAIL: it may succeed later.
            Some(Ending::NoRoom(_)) => 75,
            Some(Ending::Stopped | Ending::Cancelled(_) | Ending::KilledWithAnother(_)) => 130,
            None => u8::from(decision.event != RunEvent::Succeed),
        }
    }

    /// Returns its captured output.
    pub(crate) fn outputs(&self) -> Vec<RunOutput> {
        [(Stream::Stdout, &self.stdout), (Stream::Stderr, &self.stderr)]
            .into_iter()
            .filter(|(_, captured)| captured.total_bytes > 0)
            .map(|(stream, captured)| run_output(stream, captured))
            .collect()
    }
}

/// Converts captured output to its stored form.
pub(crate) fn run_output(stream: Stream, captured: &Captured) -> RunOutput {
    let stream = match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    RunOutput {
        stream: stream.to_owned(),
        content: captured.to_text(),
        total_bytes: i64::try_from(captured.total_bytes).unwrap_or(i64::MAX),
        is_lossy: captured.is_lossy(),
    }
}

/// Converts text to a form that every engine can store, at most as long as the column.
pub(crate) fn storable(text: &str, max_chars: usize) -> String {
    text.chars().take(max_chars).map(|c| if c == '\0' { '\u{2400}' } else { c }).collect()
}
