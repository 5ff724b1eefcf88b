//! The statuses of tasks and runs, with their spelling in the database.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::text::words::words;

/// The status of a task: of its last ended attempt, or `processing` while an attempt runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskStatus {
    /// No attempt has ended yet. The default of a new row; left when a run is claimed.
    Scheduled,
    /// A runner is executing the open run. Left when that run ends, whatever its outcome.
    Processing,
    /// The last attempt succeeded; FailedRetries is 0. Final, unless the task recurs.
    Success,
    /// The last attempt reported an error. Retried while FailedRetries is below MaxRetries, else exhausted.
    Failed,
    /// The last attempt timed out, or its runner died. Retried like `Failed`.
    Timeout,
    /// The task was cancelled. Final.
    Cancelled,
    /// The time before which an attempt had to start has passed. Final.
    Expired,
}

// In the order in which lists of tasks show them.
words! {
    /// Returns the spelling in the column LastStatus.
    TaskStatus {
        Processing = "processing", Failed = "failed", Timeout = "timeout", Scheduled = "scheduled",
        Cancelled = "cancelled", Expired = "expired", Success = "success",
    }
}

impl TaskStatus {
    /// Returns true if a task with this status has finished, whatever its other columns say.
    #[must_use]
    pub const fn is_done(self) -> bool {
        matches!(self, Self::Success | Self::Cancelled | Self::Expired)
    }
}

/// The status of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunStatus {
    /// Created by `create-runs`, and waiting for a runner.
    Scheduled,
    /// Claimed by a runner; has a Token and a lease. Changes exactly once to one of the statuses below.
    Processing,
    /// The handler succeeded.
    Success,
    /// The handler reported an error, exited with a failing exit code, or was killed by a signal.
    Error,
    /// The handler timed out, or its runner died.
    Timeout,
    /// The run was cancelled.
    Cancelled,
    /// Released without counting the attempt: the class is held, or the handler asked for it.
    Released,
}

words! {
    /// Returns the spelling in the column Status.
    RunStatus {
        Scheduled = "scheduled", Processing = "processing", Success = "success", Error = "error", Timeout = "timeout",
        Cancelled = "cancelled", Released = "released",
    }
}

impl RunStatus {
    /// Returns true if the run is open: scheduled or processing. A task has at most one open run (rule R2).
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Scheduled | Self::Processing)
    }
}

/// The position of a row in the chain of its schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScheduleStatus {
    /// The newest row, or a row without a schedule: the next row follows when it settles. The default of a new row.
    Active,
    /// The newest row; nothing follows until the schedule is resumed.
    Paused,
    /// The newest row; its expression or its zone cannot be read, so the next planned time is unknown.
    Broken,
    /// A later row follows it.
    Followed,
    /// The last row: the schedule was removed.
    Ended,
}

words! {
    /// Returns the spelling in the column ScheduleStatus.
    ScheduleStatus { Active = "active", Paused = "paused", Broken = "broken", Followed = "followed", Ended = "ended" }
}

/// A stored word: a known status or name, or the text of one that this version does not know (rule R9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored<S> {
    /// A status of this version, or a valid name.
    Known(S),
    /// An unknown status or an invalid name: shown as stored, never acted on.
    Unknown(String),
}

impl<S> Stored<S> {
    /// Returns the status or name, if it is known.
    pub const fn known(&self) -> Option<&S> {
        match self {
            Self::Known(known) => Some(known),
            Self::Unknown(_) => None,
        }
    }
}

impl<S: Copy + PartialEq> Stored<S> {
    /// Returns true if it is this known status.
    pub fn is(&self, status: S) -> bool {
        matches!(self, Self::Known(known) if *known == status)
    }
}

macro_rules! stored_status {
    ($status:ty) => {
        impl Serialize for $status {
            fn serialize<Out: Serializer>(&self, out: Out) -> Result<Out::Ok, Out::Error> {
                out.serialize_str(self.as_str())
            }
        }

        impl From<String> for Stored<$status> {
            fn from(text: String) -> Self {
                <$status>::parse(&text).map_or(Self::Unknown(text), Self::Known)
            }
        }

        impl fmt::Display for Stored<$status> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Self::Known(status) => f.pad(status.as_str()),
                    Self::Unknown(text) => f.pad(text),
                }
            }
        }

        impl Serialize for Stored<$status> {
            fn serialize<Out: Serializer>(&self, out: Out) -> Result<Out::Ok, Out::Error> {
                out.collect_str(self)
            }
        }
    };
}
pub(crate) use stored_status;

stored_status!(TaskStatus);
stored_status!(RunStatus);
stored_status!(ScheduleStatus);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_reads_back_from_its_spelling() {
        for status in TaskStatus::ALL {
            assert_eq!(TaskStatus::parse(status.as_str()), Some(status));
        }
        for status in RunStatus::ALL {
            assert_eq!(RunStatus::parse(status.as_str()), Some(status));
        }
        for status in ScheduleStatus::ALL {
            assert_eq!(ScheduleStatus::parse(status.as_str()), Some(status));
        }
    }

    #[test]
    fn r9_an_unknown_status_keeps_its_name() {
        let stored = Stored::<RunStatus>::from("hibernating".to_owned());
        assert_eq!(stored.to_string(), "hibernating");
        assert!(!RunStatus::ALL.into_iter().any(|known| stored.is(known)));
    }
}
