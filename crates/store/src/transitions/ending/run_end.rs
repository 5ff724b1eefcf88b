//! How a run ends, and the store's answer to the process that reports it.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::journal::events::NewEvent;
use crate::transitions::retry::NewStart;
use taskqueue_domain::run::backoff::Backoff;
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::run::transition::{RunEvent, run_after};
use taskqueue_domain::run::usage::Usage;
use taskqueue_domain::task::meta::Meta;
use taskqueue_domain::task::records::{Run, RunOutput};
use taskqueue_domain::text::unreadable::Unreadable;

/// The length of the column Decision.
const MAX_DECISION_CHARS: usize = 190;

/// How a run ends, and what that means for its task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunEnd {
    /// What happens to the run.
    pub event: RunEvent,
    /// Whether the task is retried while retries are left.
    pub may_retry: bool,
    /// Seconds until the next attempt; `None` uses the backoff.
    pub delay_secs: Option<i64>,
    /// The backoff of failed attempts, if the task states none.
    pub backoff: Backoff,
    /// Set if its runner or claimant was lost.
    #[serde(skip)]
    pub loss: Option<Loss>,
    /// Set if the handler or its runner crashed.
    pub crash: Option<Crash>,
    /// Set if the row of the task cannot be read: the task is quarantined.
    #[serde(skip)]
    pub unreadable: Option<Unreadable>,
    /// Empty on success.
    pub error_code: String,
    /// Empty on success.
    pub error_message: String,
    /// The decision, and the rule that led to it.
    pub decision: String,
    /// PID and identity of the handler; `None` keeps the saved values.
    pub handler: Option<(i64, String)>,
    /// What the handler used; `None` if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// 0 to 100; `None` keeps the saved value. 100 after a success.
    pub percents_completed: Option<i32>,
    /// The last line for people; `None` keeps the saved value.
    pub message: Option<String>,
    /// JSON text; `None` keeps the saved value.
    pub results: Option<String>,
    /// Values added to the metadata of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
    /// The captured output of the handler.
    pub outputs: Vec<RunOutput>,
    /// The host and the seconds for which the class is held, for the reason in `error_message`.
    pub hold: Option<(String, i64)>,
    /// A condition that the run must meet.
    #[serde(skip)]
    pub condition: EndCondition,
    /// Set if the task restarts from the beginning after the release.
    #[serde(skip)]
    pub restart: Option<NewStart>,
    /// Events that are recorded with the end, or not at all.
    #[serde(skip)]
    pub notes: Vec<NewEvent>,
}

impl RunEnd {
    /// Returns an end without further data.
    #[must_use]
    pub fn of(event: RunEvent, code: &str, message: &str, decision: &str) -> Self {
        Self {
            event,
            may_retry: true,
            delay_secs: None,
            backoff: Backoff::Fixed(0),
            loss: None,
            crash: None,
            unreadable: None,
            error_code: code.to_owned(),
            error_message: message.to_owned(),
            decision: decision.to_owned(),
            handler: None,
            usage: None,
            percents_completed: None,
            message: None,
            results: None,
            meta: None,
            outputs: Vec::new(),
            hold: None,
            condition: EndCondition::Held,
            restart: None,
            notes: Vec::new(),
        }
    }

    /// Returns the same end for a run whose cancellation was requested: it did not succeed, and is not retried. Returns `None`
    /// for ends that stay unchanged.
    pub(in crate::transitions) fn as_cancelled(&self) -> Option<Self> {
        if matches!(self.event, RunEvent::Succeed | RunEvent::Cancel) {
            return None;
        }
        let decision = format!("cancelled; {}", self.decision).chars().take(MAX_DECISION_CHARS).collect();
        Some(Self { event: RunEvent::Cancel, crash: None, loss: None, decision, ..self.clone() })
    }

    /// Returns the restart of the task; a cancelled task is not restarted.
    pub(in crate::transitions) fn new_start(&self) -> Option<&NewStart> {
        self.restart.as_ref().filter(|_| self.event == RunEvent::Release)
    }

    /// Returns true if the run has ended in this way.
    #[must_use]
    pub fn is_end_of(&self, run: &Run) -> bool {
        let is_written = |end: &Self| {
            run_after(RunStatus::Processing, end.event).is_some_and(|status| run.status.is(status))
                && run.decision == end.decision
                && run.error_code == end.error_code
        };
        is_written(self) || self.as_cancelled().as_ref().is_some_and(is_written)
    }
}

/// The loss of a runner or claimant. If neither task nor class states a backoff, the retry is immediate; from the second crash
/// on, it waits by the backoff of the settings.
#[derive(Clone, Debug)]
pub struct Loss {
    /// The backoff that the class states.
    pub class_backoff: Option<Backoff>,
    /// Set if the claim of a claimant expired.
    pub lateness: Option<Lateness>,
}

/// What happens after the claim of a claimant expired. The task is not offered to it for a while. After several expired claims,
/// the claimant counts as having rejected it.
#[derive(Clone, Copy, Debug)]
pub struct Lateness {
    /// Seconds for which the task is not offered to it.
    pub hold_secs: i64,
    /// How many expired claims count as a rejection.
    pub limit: i32,
}

/// A crash, which counts towards the quarantine of the task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Crash {
    /// The number of crashes, without a success between them, that quarantines the task.
    pub limit: i32,
    /// Who is recorded as the author of the quarantine.
    pub actor: String,
    /// The host.
    pub host: String,
}

/// A condition of ending a run, in addition to its status and its token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndCondition {
    /// No further condition.
    #[default]
    Held,
    /// Its lease has expired: the runner may have renewed it since the check. Also, leases must count, which they do not until
    /// the server has been up for the duration of a lease.
    LeaseOver {
        /// The duration of a lease.
        lease_secs: i64,
    },
    /// Its lease is unchanged. The runner does not renew it although it has not expired, because it was written under a clock
    /// that was ahead. Also, leases must count.
    LeaseIs {
        /// The lease.
        lease: DateTime<Utc>,
        /// The duration of a lease.
        lease_secs: i64,
    },
    /// No further condition; the claimant that has the run rejects its task, and this is recorded.
    Rejected,
}

/// The answer to a write that ends a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndResult {
    /// It ended as asked.
    Recorded,
    /// As `Recorded`, for a run that failed or timed out and whose task is not retried.
    GivenUp,
    /// It ended as cancelled, because that had been requested before.
    Cancelled,
    /// Another process was first: the run has this status, or another token.
    Lost {
        /// Its status.
        found: String,
    },
}

impl EndResult {
    /// Returns true if it ended as asked.
    #[must_use]
    pub fn is_as_asked(&self) -> bool {
        matches!(self, Self::Recorded | Self::GivenUp)
    }
}
