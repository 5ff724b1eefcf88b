//! How long what is finished is kept: by age and by number, for each status of a task.

use std::fmt;

use serde::Serialize;

use super::status::TaskStatus;

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
    /// A run of it started so short a time ago that the rate of its class counts it.
    CountedByRate,
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
            Self::CountedByRate => "the rate of its class still counts a run of it",
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
}
