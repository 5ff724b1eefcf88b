//! What the end of an attempt means for its task, in the words of events, hooks and listeners.

use std::fmt;

use super::transition::RunEvent;

/// What the end of an attempt means for its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// It succeeded.
    Success,
    /// It failed or timed out, and the task is retried.
    Retry,
    /// It failed or timed out, and the task is not retried: no retry is left, none makes sense, or it is quarantined.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It was released, and counts as no attempt.
    Released,
}

impl AttemptOutcome {
    /// The outcome of a run that ended so; `is_given_up` says that its task is not retried.
    #[must_use]
    pub const fn of(event: RunEvent, is_given_up: bool) -> Self {
        match event {
            RunEvent::Succeed => Self::Success,
            RunEvent::Fail | RunEvent::TimeOut if is_given_up => Self::Failed,
            RunEvent::Fail | RunEvent::TimeOut => Self::Retry,
            RunEvent::Cancel => Self::Cancelled,
            RunEvent::Release | RunEvent::Claim => Self::Released,
        }
    }

    /// The word in events, in hooks and in the configuration.
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
