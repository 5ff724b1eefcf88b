//! How long what is finished is kept: by age and by number, for each status of a task.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::when::parse_duration;
use crate::run::status::TaskStatus;

/// Seconds of a day.
const DAY_SECS: i64 = 86_400;

/// How much of something is kept. 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Keep {
    /// Days.
    pub days: i64,
    /// How many, the newest.
    pub most: i64,
}

impl Keep {
    /// The age in seconds from which on nothing is kept.
    #[must_use]
    pub const fn older_than_secs(self) -> Option<i64> {
        if self.days > 0 { Some(self.days.saturating_mul(DAY_SECS)) } else { None }
    }

    /// The number beyond which nothing is kept.
    #[must_use]
    pub fn at_most(self) -> Option<i64> {
        (self.most > 0).then_some(self.most)
    }
}

/// The longest time for which a task or its results are kept, in seconds: 63 years.
pub const MAX_KEEP_SECS: i64 = 2_000_000_000;
/// In place of a time: no limit.
pub const FOREVER: &str = "forever";

/// Reads how long something is kept, in whole seconds; 0 is no limit, as in the settings.
///
/// # Errors
/// No duration of at least a second, and not `forever`.
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

/// What a task, or its class, states about how long it is kept. In seconds; 0 is no limit, and `None` states nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeping {
    /// The task, after it is over.
    pub task_secs: Option<i32>,
    /// The results of its runs, after their ends.
    pub results_secs: Option<i32>,
}

/// Tells what the class of this name states.
pub type KeepOfClass = Arc<dyn Fn(&str) -> Keeping + Send + Sync>;

/// What is kept for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Retention {
    /// Tasks that succeeded.
    pub success: Keep,
    /// Tasks that were cancelled.
    pub cancelled: Keep,
    /// Tasks that failed or timed out for good: exhausted or quarantined.
    pub failed: Keep,
    /// What handlers wrote.
    pub outputs: Keep,
    /// What handlers left as their results.
    pub results: Keep,
    /// Runners that ended, and events that belong to no task.
    pub runners: Keep,
}

impl Retention {
    /// The statuses of tasks that can be finished.
    pub const FINISHED: [TaskStatus; 4] =
        [TaskStatus::Success, TaskStatus::Cancelled, TaskStatus::Failed, TaskStatus::Timeout];

    /// How long a finished task of this status is kept; without limit where it is not finished.
    #[must_use]
    pub fn of(&self, status: TaskStatus) -> Keep {
        match status {
            TaskStatus::Success => self.success,
            TaskStatus::Cancelled => self.cancelled,
            TaskStatus::Failed | TaskStatus::Timeout => self.failed,
            TaskStatus::Scheduled | TaskStatus::Processing => Keep::default(),
        }
    }
}

/// Why a task is not deleted, however old it is and whoever wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is in a status in which no task is finished, or in one that this version does not know.
    NotOver,
    /// It has failed and a retry is left.
    TriedAgain,
    /// It has an open run.
    OpenRun,
    /// It is the newest task of a schedule: without it there is none.
    ScheduleHead,
    /// Its unique key is taken for a time that is not over.
    KeyTaken,
    /// A task that stays waits for it.
    Awaited,
    /// Somebody changes it at this moment, or queues what is to wait for it.
    InUse,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NotOver => "it is not over",
            Self::TriedAgain => "it is to be tried again",
            Self::OpenRun => "it has an open run",
            Self::ScheduleHead => "it is the newest task of its schedule",
            Self::KeyTaken => "it keeps its unique key for a while yet",
            Self::Awaited => "others wait for it",
            Self::InUse => "it is in use at this moment: try again",
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
            [("0s", "keeps nothing"), ("500ms", "keeps nothing"), ("1500ms", "fraction"), ("7", "duration")]
        {
            assert!(parse_keep(text).unwrap_err().contains(why), "{text}");
        }
    }
}
