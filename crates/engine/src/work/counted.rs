//! What is counted when a run has ended: its class, how it ended according to the store, and how long its handler took.

use std::time::Duration;

use super::backlog::Finished;
use crate::outbox::outcomes_of_many::Sent;
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::run::transition::{RunEvent, run_after};
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_store::{Ended, RunEnd, RunRef};

/// A run that has ended.
pub(super) struct Counted<'a> {
    pub(super) class: &'a str,
    pub(super) outcome: &'static str,
    /// `None` if its handler was never started.
    pub(super) took: Option<Duration>,
}

/// Returns what to count for a run with this answer.
pub(super) fn counted<'a>(finished: &'a Finished, answer: Option<&Sent>) -> Counted<'a> {
    let ended = finished.to_send.as_ref().zip(answer);
    let outcome = ended.map_or("open", |(to_send, sent)| outcome_of_sent(to_send.end.event, sent));
    Counted { class: &finished.run.class, outcome, took: Some(finished.took) }
}

/// Returns the label for a run that should have ended with `event`, or why that was not recorded.
pub(super) fn outcome_of_sent(event: RunEvent, sent: &Sent) -> &'static str {
    match sent {
        Sent::Answered(ended) => outcome_of(event, ended),
        Sent::Refused(_) => "refused",
    }
}

/// Returns the label for a run that should have ended with `event`, according to the answer of the store.
pub(super) fn outcome_of(event: RunEvent, ended: &Ended) -> &'static str {
    match ended {
        Ended::Recorded | Ended::GivenUp => {
            run_after(RunStatus::Processing, event).unwrap_or(RunStatus::Released).as_str()
        }
        Ended::Cancelled => RunStatus::Cancelled.as_str(),
        Ended::Lost { .. } => "lost",
    }
}

/// A run that is counted when the store has an answer.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) class: String,
    pub(super) run: RunRef,
    pub(super) end: RunEnd,
    /// `None` if its handler was never started.
    pub(super) took: Option<Duration>,
}

impl Unanswered {
    pub(super) fn new(run: ClaimedRun, end: RunEnd, took: Option<Duration>) -> Self {
        Self { class: run.class.to_string(), run: RunRef { id: run.run_id, token: run.token }, end, took }
    }
}
