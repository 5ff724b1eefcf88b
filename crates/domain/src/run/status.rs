//! The statuses of tasks and runs, with their spelling in the database.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::text::words::words;

// In the order in which lists of tasks show them.
words! {
    /// The status of a task: of its last ended attempt, or `processing` while an attempt runs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum TaskStatus {
        /// A runner is executing the open run. Left when that run ends, whatever its outcome.
        Processing = "processing",
        /// The last attempt reported an error. Retried while FailedRetries is below MaxRetries, else exhausted.
        Failed = "failed",
        /// The last attempt timed out, or its runner died. Retried like `Failed`.
        Timeout = "timeout",
        /// No attempt has ended yet. The default of a new row; left when a run is claimed.
        Scheduled = "scheduled",
        /// The task was cancelled. Final.
        Cancelled = "cancelled",
        /// The time before which an attempt had to start has passed. Final.
        Expired = "expired",
        /// The last attempt succeeded; FailedRetries is 0. Final, unless the task recurs.
        Success = "success",
    }
}

impl TaskStatus {
    /// Returns true if a task with this status has finished, whatever its other columns say.
    #[must_use]
    pub const fn is_done(self) -> bool {
        matches!(self, Self::Success | Self::Cancelled | Self::Expired)
    }
}

words! {
    /// The status of one attempt.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum RunStatus {
        /// Created by `create-runs`, and waiting for a runner.
        Scheduled = "scheduled",
        /// Claimed by a runner; has a Token and a lease. Changes exactly once to one of the statuses below.
        Processing = "processing",
        /// The handler succeeded.
        Success = "success",
        /// The handler reported an error, exited with a failing exit code, or was killed by a signal.
        Error = "error",
        /// The handler timed out, or its runner died.
        Timeout = "timeout",
        /// The run was cancelled.
        Cancelled = "cancelled",
        /// Released without counting the attempt: the class is held, or the handler asked for it.
        Released = "released",
    }
}

impl RunStatus {
    /// Returns true if the run is open: scheduled or processing. A task has at most one open run (rule R2).
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Scheduled | Self::Processing)
    }
}

words! {
    /// The position of a row in the chain of its schedule.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ScheduleStatus {
        /// The newest row, or a row without a schedule: the next row follows when it settles. The default of a new row.
        Active = "active",
        /// The newest row; nothing follows until the schedule is resumed.
        Paused = "paused",
        /// The newest row; its expression or its zone cannot be read, so the next planned time is unknown.
        Broken = "broken",
        /// A later row follows it.
        Followed = "followed",
        /// The last row: the schedule was removed.
        Ended = "ended",
    }
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
