//! What the end of an attempt means for its task, as events, hooks and listeners name it.

use super::transition::RunEvent;
use crate::text::words::words;

/// What the end of an attempt means for its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// The attempt succeeded.
    Success,
    /// The attempt failed or timed out, and the task is retried.
    Retry,
    /// The attempt failed or timed out, and the task is not retried: exhausted, quarantined, or a retry was ruled out.
    Failed,
    /// The attempt was cancelled.
    Cancelled,
    /// The attempt was released, and does not count.
    Released,
}

words! {
    /// Returns the word used in events, hooks and the configuration.
    AttemptOutcome { Success = "success", Retry = "retry", Failed = "failed", Cancelled = "cancelled", Released = "released" }
}

impl AttemptOutcome {
    /// Returns the outcome of a run that ended with `event`; `is_given_up` is true if its task is not retried.
    #[must_use]
    pub const fn of(event: RunEvent, is_given_up: bool) -> Self {
        match event {
            RunEvent::Succeed => Self::Success,
            RunEvent::Fail | RunEvent::TimeOut if is_given_up => Self::Failed,
            RunEvent::Fail | RunEvent::TimeOut => Self::Retry,
            RunEvent::Cancel | RunEvent::Expire => Self::Cancelled,
            RunEvent::Release | RunEvent::Claim => Self::Released,
        }
    }
}
