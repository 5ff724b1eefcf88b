//! What the end of an attempt means for its task, as events, hooks and listeners name it.

use std::fmt;

use super::transition::RunEvent;

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

    /// Returns the word used in events, hooks and the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Retry => "retry",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Released => "released",
        }
    }
}

impl fmt::Display for AttemptOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
