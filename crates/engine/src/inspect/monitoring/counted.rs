//! What is counted when a run has ended: its class, how it ended according to the store, and how long its handler took.

use std::time::Duration;

use crate::outbox::outcomes_of_many::Sent;
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::run::transition::{RunEvent, run_after};
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_store::{EndResult, RunEnd, RunRef};

/// A run that has ended.
pub(crate) struct CountedRun<'a> {
    pub(crate) class: &'a str,
    pub(crate) outcome: &'static str,
    /// `None` if its handler was never started.
    pub(crate) took: Option<Duration>,
    /// Processor time of its program; `None` if it was not measured.
    pub(crate) cpu_msecs: Option<i64>,
}

/// Returns the label for a run that should have ended with `event`, or why that was not recorded.
pub(crate) fn outcome_of_sent(event: RunEvent, sent: &Sent) -> &'static str {
    match sent {
        Sent::Answered(ended) => outcome_of(event, ended),
        Sent::Refused(_) => "refused",
    }
}

/// Returns the label for a run that should have ended with `event`, according to the answer of the store.
pub(crate) fn outcome_of(event: RunEvent, ended: &EndResult) -> &'static str {
    match ended {
        EndResult::Recorded | EndResult::GivenUp => {
            run_after(RunStatus::Processing, event).unwrap_or(RunStatus::Released).as_str()
        }
        EndResult::Cancelled => RunStatus::Cancelled.as_str(),
        EndResult::Lost { .. } => "lost",
    }
}

/// A run that is counted when the store has an answer.
#[derive(Debug)]
pub(crate) struct Unanswered {
    pub(crate) class: String,
    pub(crate) run: RunRef,
    pub(crate) end: RunEnd,
    /// `None` if its handler was never started.
    pub(crate) took: Option<Duration>,
}

impl Unanswered {
    pub(crate) fn new(run: ClaimedRun, end: RunEnd, took: Option<Duration>) -> Self {
        Self { class: run.class.to_string(), run: RunRef { id: run.run_id, token: run.token }, end, took }
    }
}
