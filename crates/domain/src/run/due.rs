//! The due rule: when a task gets its next run. The database repeats the rule as the generated column DueOn, for its index; a
//! test of the store checks that both agree.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::run::status::{Stored, TaskStatus};

/// The inputs of the rule.
#[derive(Clone, Debug)]
pub struct DueFacts {
    /// LastStatus.
    pub status: Stored<TaskStatus>,
    /// Whether the task has an open run.
    pub has_open_run: bool,
    /// FailedRetries.
    pub failed_retries: i32,
    /// RetryLimit, or MaxRetries where that is NULL; `None` where both are.
    pub retry_limit: Option<i32>,
    /// The number of dependencies that have not succeeded yet.
    pub waiting_for: i32,
    /// Whether it is quarantined.
    pub is_quarantined: bool,
    /// Whether its planned time is known; false only for the first row of a schedule before `create-runs` has processed it.
    pub is_planned: bool,
    /// Whether its schedule is paused.
    pub is_schedule_paused: bool,
    /// NextAttemptOn, or ScheduledOn where that is NULL.
    pub due_from: DateTime<Utc>,
}

/// Why a task gets no run now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotDue {
    /// This version does not know its status.
    UnknownStatus(String),
    /// A runner is processing it.
    Processing,
    /// Its run is waiting for a runner.
    HasOpenRun,
    /// It succeeded.
    Succeeded,
    /// It was cancelled.
    Cancelled,
    /// It expired.
    Expired,
    /// It crashed too often.
    Quarantined,
    /// FailedRetries has reached its limit.
    Exhausted,
    /// This many dependencies have not succeeded yet.
    WaitsForDependencies(i32),
    /// It is the first row of a schedule, and its first planned time is not known yet.
    NotPlanned,
    /// Its schedule is paused.
    SchedulePaused,
    /// The time of its first or next attempt is in the future.
    NotYet,
}

impl fmt::Display for NotDue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownStatus(status) => write!(f, "its status \"{status}\" is not known to this version"),
            Self::Processing => f.write_str("a runner is working on it"),
            Self::HasOpenRun => f.write_str("its run waits for a runner"),
            Self::Succeeded => f.write_str("it succeeded"),
            Self::Cancelled => f.write_str("it was cancelled"),
            Self::Expired => f.write_str("it expired"),
            Self::Quarantined => f.write_str("it is quarantined"),
            Self::Exhausted => f.write_str("no retry is left"),
            Self::WaitsForDependencies(count) => {
                write!(f, "it waits for {count} other {}", if *count == 1 { "task" } else { "tasks" })
            }
            Self::NotPlanned => f.write_str("its schedule has no planned time yet"),
            Self::SchedulePaused => f.write_str("its schedule is paused"),
            Self::NotYet => f.write_str("it is not due yet"),
        }
    }
}

/// A condition of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DueCondition {
    /// This version knows its status.
    StatusIsKnown,
    /// No runner is processing it.
    NotProcessing,
    /// It has not succeeded.
    NotSucceeded,
    /// It was not cancelled.
    NotCancelled,
    /// It has not expired.
    NotExpired,
    /// It has no waiting run.
    NoOpenRun,
    /// It did not crash too often.
    NotQuarantined,
    /// FailedRetries is below its limit, as far as the limit is known before an attempt fails.
    RetryIsLeft,
    /// Its prerequisites have succeeded.
    DependenciesDone,
    /// Its planned time is known.
    IsPlanned,
    /// Its schedule is not paused.
    ScheduleGoesOn,
    /// The time of its first or next attempt has come.
    Due,
}

impl DueCondition {
    /// All conditions, in the order in which an operator should check them.
    pub const ALL: [Self; 12] = [
        Self::StatusIsKnown,
        Self::NotProcessing,
        Self::NotSucceeded,
        Self::NotCancelled,
        Self::NotExpired,
        Self::NoOpenRun,
        Self::NotQuarantined,
        Self::RetryIsLeft,
        Self::DependenciesDone,
        Self::IsPlanned,
        Self::ScheduleGoesOn,
        Self::Due,
    ];

    /// Returns `Ok` if the condition is met at `now`.
    ///
    /// # Errors
    /// The condition is not met; the reason.
    pub fn check(self, facts: &DueFacts, now: DateTime<Utc>) -> Result<(), NotDue> {
        let status = |status| facts.status.is(status);
        let not_due = match (self, &facts.status) {
            (Self::StatusIsKnown, Stored::Unknown(status)) => Some(NotDue::UnknownStatus(status.clone())),
            (Self::StatusIsKnown, Stored::Known(_)) => None,
            (Self::NotProcessing, _) => status(TaskStatus::Processing).then_some(NotDue::Processing),
            (Self::NotSucceeded, _) => status(TaskStatus::Success).then_some(NotDue::Succeeded),
            (Self::NotCancelled, _) => status(TaskStatus::Cancelled).then_some(NotDue::Cancelled),
            (Self::NotExpired, _) => status(TaskStatus::Expired).then_some(NotDue::Expired),
            (Self::NoOpenRun, _) => facts.has_open_run.then_some(NotDue::HasOpenRun),
            (Self::NotQuarantined, _) => facts.is_quarantined.then_some(NotDue::Quarantined),
            (Self::RetryIsLeft, _) => {
                (facts.retry_limit.is_some_and(|limit| facts.failed_retries >= limit)).then_some(NotDue::Exhausted)
            }
            (Self::DependenciesDone, _) => {
                (facts.waiting_for > 0).then_some(NotDue::WaitsForDependencies(facts.waiting_for))
            }
            (Self::IsPlanned, _) => (!facts.is_planned).then_some(NotDue::NotPlanned),
            (Self::ScheduleGoesOn, _) => facts.is_schedule_paused.then_some(NotDue::SchedulePaused),
            (Self::Due, _) => (facts.due_from > now).then_some(NotDue::NotYet),
        };
        not_due.map_or(Ok(()), Err)
    }
}

/// Returns `Ok` if the task gets a run at `now`.
///
/// # Errors
/// The first condition that is not met, in the order in which an operator should check them.
pub fn is_due(facts: &DueFacts, now: DateTime<Utc>) -> Result<(), NotDue> {
    DueCondition::ALL.into_iter().try_for_each(|condition| condition.check(facts, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> DueFacts {
        DueFacts {
            status: Stored::Known(TaskStatus::Scheduled),
            has_open_run: false,
            failed_retries: 0,
            retry_limit: Some(5),
            waiting_for: 0,
            is_quarantined: false,
            is_planned: true,
            is_schedule_paused: false,
            due_from: DateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_task_is_due_when_nothing_speaks_against_it() {
        for status in [TaskStatus::Scheduled, TaskStatus::Failed, TaskStatus::Timeout] {
            let facts = DueFacts { status: Stored::Known(status), ..facts() };
            assert_eq!(is_due(&facts, DateTime::UNIX_EPOCH), Ok(()));
        }
    }

    #[test]
    fn each_condition_alone_keeps_a_task_from_being_due() {
        let later = DateTime::UNIX_EPOCH + chrono::TimeDelta::microseconds(1);
        let cases = [
            (DueFacts { status: Stored::Known(TaskStatus::Processing), ..facts() }, NotDue::Processing),
            (DueFacts { status: Stored::Known(TaskStatus::Success), ..facts() }, NotDue::Succeeded),
            (DueFacts { status: Stored::Known(TaskStatus::Cancelled), ..facts() }, NotDue::Cancelled),
            (DueFacts { status: Stored::Known(TaskStatus::Expired), ..facts() }, NotDue::Expired),
            (DueFacts { status: Stored::Unknown("x".into()), ..facts() }, NotDue::UnknownStatus("x".into())),
            (DueFacts { has_open_run: true, ..facts() }, NotDue::HasOpenRun),
            (DueFacts { is_quarantined: true, ..facts() }, NotDue::Quarantined),
            (DueFacts { failed_retries: 5, ..facts() }, NotDue::Exhausted),
            (DueFacts { waiting_for: 2, ..facts() }, NotDue::WaitsForDependencies(2)),
            (DueFacts { is_planned: false, ..facts() }, NotDue::NotPlanned),
            (DueFacts { is_schedule_paused: true, ..facts() }, NotDue::SchedulePaused),
            (DueFacts { due_from: later, ..facts() }, NotDue::NotYet),
        ];
        for (facts, reason) in cases {
            assert_eq!(is_due(&facts, DateTime::UNIX_EPOCH), Err(reason));
        }
    }
}
