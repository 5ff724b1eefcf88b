//! How a run ends, and what the store answers to whoever says so.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::upkeep::events::NewEvent;
use taskqueue_domain::run::backoff::Backoff;
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::run::transition::{RunEvent, run_after};
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
    /// Whether the task is tried again while retries are left.
    pub may_retry: bool,
    /// Seconds until the next attempt; `None` leaves it to the backoff.
    pub delay_secs: Option<i64>,
    /// How long failed attempts wait, where the task itself does not say.
    pub backoff: Backoff,
    /// Set if its worker was lost.
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
    /// What was decided, and by which rule.
    pub decision: String,
    /// PID and identity of the handler; `None` keeps what was saved before.
    pub handler: Option<(i64, String)>,
    /// 0 to 100; `None` keeps what was saved before. 100 after a success.
    pub percents_completed: Option<i32>,
    /// The last line for people; `None` keeps what was saved before.
    pub message: Option<String>,
    /// JSON text; `None` keeps what was saved before.
    pub results: Option<String>,
    /// What is added to the metadata of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Meta>,
    /// What the handler wrote.
    pub outputs: Vec<RunOutput>,
    /// Host and seconds for which the class is held, for the reason in `error_message`.
    pub hold: Option<(String, i64)>,
    /// What must still be true of the run.
    #[serde(skip)]
    pub condition: EndCondition,
    /// Set if the task starts from the beginning once the run is released, as after `requeue`.
    #[serde(skip)]
    pub restarts_task: bool,
    /// Events that are kept with the end, or not at all.
    #[serde(skip)]
    pub notes: Vec<NewEvent>,
}

impl RunEnd {
    /// An end of which there is nothing more to say.
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
            percents_completed: None,
            message: None,
            results: None,
            meta: None,
            outputs: Vec::new(),
            hold: None,
            condition: EndCondition::Held,
            restarts_task: false,
            notes: Vec::new(),
        }
    }

    /// The same where somebody has asked for the end of the run: it did not succeed, and is not tried again. `None` for what
    /// stays as it is.
    pub(super) fn as_cancelled(&self) -> Option<Self> {
        if matches!(self.event, RunEvent::Succeed | RunEvent::Cancel) {
            return None;
        }
        let decision = format!("cancelled; {}", self.decision).chars().take(MAX_DECISION_CHARS).collect();
        Some(Self { event: RunEvent::Cancel, crash: None, loss: None, decision, ..self.clone() })
    }

    /// Whether this is how the run has ended.
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

/// The loss of a worker. Where neither task nor class states a backoff, the next attempt comes at once; from the second crash on it
/// waits by the backoff of the settings.
#[derive(Clone, Debug)]
pub struct Loss {
    /// The backoff that the class states.
    pub class_backoff: Option<Backoff>,
    /// Set if the time of a claimant ran out.
    pub lateness: Option<Lateness>,
}

/// What becomes of a claimant whose time with a task ran out: it is not offered the task for a while, and after so many times
/// it counts as having rejected it.
#[derive(Clone, Copy, Debug)]
pub struct Lateness {
    /// Seconds for which it is not offered the task.
    pub hold_secs: i64,
    /// How many times make a rejection.
    pub limit: i32,
}

/// A crash, by which the task comes nearer to its quarantine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Crash {
    /// The number of crashes, without a success between them, that quarantines the task.
    pub limit: i32,
    /// Who notes the quarantine.
    pub actor: String,
    /// Where.
    pub host: String,
}

/// What must be true of a run that is ended, beyond its status and its token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndCondition {
    /// Nothing more.
    #[default]
    Held,
    /// Its lease is over: the runner may have renewed it since somebody looked. And leases count, which they do not before
    /// the server has been up for the time of one.
    LeaseOver {
        /// The time of a lease.
        lease_secs: i64,
    },
    /// Its lease is still this one, which its runner does not renew although it is not over: it was written under a clock that was
    /// ahead. And leases count.
    LeaseIs {
        /// The lease.
        lease: DateTime<Utc>,
        /// The time of a lease.
        lease_secs: i64,
    },
    /// Nothing more; and the claimant that holds it rejects its task, and is remembered.
    Rejected,
}

/// The answer to a write that ends a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It ended as asked.
    Recorded,
    /// The same of a run that failed or timed out, and its task is not retried.
    GivenUp,
    /// It ended, but as cancelled: that was asked for before.
    Cancelled,
    /// Somebody else was first: the run has this status, or another token.
    Lost {
        /// The status that it has.
        found: String,
    },
}

impl Ended {
    /// Whether it ended as asked.
    #[must_use]
    pub fn is_as_asked(&self) -> bool {
        matches!(self, Self::Recorded | Self::GivenUp)
    }
}
