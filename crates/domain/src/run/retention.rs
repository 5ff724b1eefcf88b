//! Retention: how long finished tasks and their data are kept, by age and by number.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::run::status::TaskStatus;
use crate::time::when::parse_duration;

/// Seconds of a day.
const DAY_SECS: i64 = 86_400;

/// A limit of retention. 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Keep {
    /// Age in days.
    pub days: i64,
    /// Number of the newest ones to keep.
    pub most: i64,
}

impl Keep {
    /// Returns the age in seconds from which nothing is kept.
    #[must_use]
    pub const fn older_than_secs(self) -> Option<i64> {
        if self.days > 0 { Some(self.days.saturating_mul(DAY_SECS)) } else { None }
    }

    /// Returns the number beyond which nothing is kept.
    #[must_use]
    pub fn at_most(self) -> Option<i64> {
        (self.most > 0).then_some(self.most)
    }
}

/// The longest time for which a task or its results are kept, in seconds: 63 years.
pub const MAX_KEEP_SECS: i64 = 2_000_000_000;
/// The word for no limit.
pub const FOREVER: &str = "forever";

/// Parses how long something is kept, in whole seconds; 0 means no limit, as in the settings.
///
/// # Errors
/// The text is neither a duration of at least a second nor `forever`.
pub fn parse_keep(text: &str) -> Result<i64, String> {
    if text == FOREVER {
        return Ok(0);
    }
    let keep = parse_duration(text)?;
    let secs = i64::try_from(keep.as_secs()).map_err(|_| format!("\"{text}\" is too long"))?;
    match (secs, keep.subsec_nanos()) {
        (0, _) => Err(format!("\"{text}\" keeps nothing; write 1s or more, or {FOREVER}")),
        (_, 0) => Ok(secs),
        _ => Err(format!("\"{text}\" has a fraction of a second; write whole seconds")),
    }
}

/// How long a task is kept, as stated by the task or its class. In seconds; 0 means no limit, `None` states nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeping {
    /// The task, after it has finished.
    pub task_secs: Option<i32>,
    /// The results of each run, after its end.
    pub results_secs: Option<i32>,
}

/// Returns what the class of this name states.
pub type KeepOfClass = Arc<dyn Fn(&str) -> Keeping + Send + Sync>;

/// The retention of the whole store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Retention {
    /// Tasks that succeeded.
    pub success: Keep,
    /// Tasks that were cancelled or expired.
    pub cancelled: Keep,
    /// Tasks that are exhausted or quarantined.
    pub failed: Keep,
    /// Captured output of handlers.
    pub outputs: Keep,
    /// Results of handlers.
    pub results: Keep,
    /// Ended runners, and events without a task.
    pub runners: Keep,
}

impl Retention {
    /// The statuses that a finished task can have.
    pub const FINISHED: [TaskStatus; 5] =
        [TaskStatus::Success, TaskStatus::Cancelled, TaskStatus::Expired, TaskStatus::Failed, TaskStatus::Timeout];

    /// Returns how long a finished task of this status is kept; no limit for the statuses of unfinished tasks.
    #[must_use]
    pub fn of(&self, status: TaskStatus) -> Keep {
        match status {
            TaskStatus::Success => self.success,
            TaskStatus::Cancelled | TaskStatus::Expired => self.cancelled,
            TaskStatus::Failed | TaskStatus::Timeout => self.failed,
            TaskStatus::Scheduled | TaskStatus::Processing => Keep::default(),
        }
    }
}

/// Why a task cannot be deleted, even on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Its status is not one of a finished task, or this version does not know it.
    NotOver,
    /// It has failed and a retry is left.
    TriedAgain,
    /// It has an open run.
    OpenRun,
    /// It is the newest task of a schedule: without it, the schedule would be lost.
    ScheduleHead,
    /// Its unique key is still taken.
    KeyTaken,
    /// A task that is kept waits for it.
    Awaited,
    /// A transaction is changing it, or is queueing a task that waits for it.
    InUse,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NotOver => "it has not finished",
            Self::TriedAgain => "it will be retried",
            Self::OpenRun => "it has an open run",
            Self::ScheduleHead => "it is the newest task of its schedule",
            Self::KeyTaken => "it still holds its unique key",
            Self::Awaited => "other tasks wait for it",
            Self::InUse => "it is in use: try again",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_no_limit() {
        assert_eq!((Keep::default().older_than_secs(), Keep::default().at_most()), (None, None));
        let keep = Keep { days: 2, most: 7 };
        assert_eq!((keep.older_than_secs(), keep.at_most()), (Some(172_800), Some(7)));
    }

    #[test]
    fn a_time_to_keep_is_whole_seconds_or_forever() {
        assert_eq!((parse_keep("7d"), parse_keep("1s"), parse_keep("forever")), (Ok(604_800), Ok(1), Ok(0)));
        for (text, why) in
            [("0s", "keeps nothing"), ("500ms", "keeps nothing"), ("1500ms", "fraction"), ("7", "no unit")]
        {
            assert!(parse_keep(text).unwrap_err().contains(why), "{text}");
        }
    }
}
