//! The due rule: when a task gets its next run. The database repeats the rule as the generated column DueOn, for its index; a
//! test of the store checks that both agree.

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

    /// Returns true if the condition is met at `now`.
    #[must_use]
    pub fn is_met(self, facts: &DueFacts, now: DateTime<Utc>) -> bool {
        let status = |status| facts.status.is(status);
        match self {
            Self::StatusIsKnown => matches!(facts.status, Stored::Known(_)),
            Self::NotProcessing => !status(TaskStatus::Processing),
            Self::NotSucceeded => !status(TaskStatus::Success),
            Self::NotCancelled => !status(TaskStatus::Cancelled),
            Self::NotExpired => !status(TaskStatus::Expired),
            Self::NoOpenRun => !facts.has_open_run,
            Self::NotQuarantined => !facts.is_quarantined,
            Self::RetryIsLeft => facts.retry_limit.is_none_or(|limit| facts.failed_retries < limit),
            Self::DependenciesDone => facts.waiting_for <= 0,
            Self::IsPlanned => facts.is_planned,
            Self::ScheduleGoesOn => !facts.is_schedule_paused,
            Self::Due => facts.due_from <= now,
        }
    }

    /// Returns why a task that does not meet it gets no run.
    #[must_use]
    pub fn why_not(self, facts: &DueFacts) -> String {
        match self {
            Self::StatusIsKnown => format!("its status \"{}\" is not known to this version", facts.status),
            Self::NotProcessing => "a runner is working on it".to_owned(),
            Self::NotSucceeded => "it succeeded".to_owned(),
            Self::NotCancelled => "it was cancelled".to_owned(),
            Self::NotExpired => "it expired".to_owned(),
            Self::NoOpenRun => "its run waits for a runner".to_owned(),
            Self::NotQuarantined => "it is quarantined".to_owned(),
            Self::RetryIsLeft => "no retry is left".to_owned(),
            Self::DependenciesDone => {
                let count = facts.waiting_for;
                format!("it waits for {count} other {}", if count == 1 { "task" } else { "tasks" })
            }
            Self::IsPlanned => "its schedule has no planned time yet".to_owned(),
            Self::ScheduleGoesOn => "its schedule is paused".to_owned(),
            Self::Due => "it is not due yet".to_owned(),
        }
    }
}

/// Returns `Ok` if the task gets a run at `now`.
///
/// # Errors
/// The first condition that is not met, in the order in which an operator should check them.
pub fn is_due(facts: &DueFacts, now: DateTime<Utc>) -> Result<(), DueCondition> {
    DueCondition::ALL.into_iter().find(|condition| !condition.is_met(facts, now)).map_or(Ok(()), Err)
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
            (DueFacts { status: Stored::Known(TaskStatus::Processing), ..facts() }, DueCondition::NotProcessing),
            (DueFacts { status: Stored::Known(TaskStatus::Success), ..facts() }, DueCondition::NotSucceeded),
            (DueFacts { status: Stored::Known(TaskStatus::Cancelled), ..facts() }, DueCondition::NotCancelled),
            (DueFacts { status: Stored::Known(TaskStatus::Expired), ..facts() }, DueCondition::NotExpired),
            (DueFacts { status: Stored::Unknown("x".into()), ..facts() }, DueCondition::StatusIsKnown),
            (DueFacts { has_open_run: true, ..facts() }, DueCondition::NoOpenRun),
            (DueFacts { is_quarantined: true, ..facts() }, DueCondition::NotQuarantined),
            (DueFacts { failed_retries: 5, ..facts() }, DueCondition::RetryIsLeft),
            (DueFacts { waiting_for: 2, ..facts() }, DueCondition::DependenciesDone),
            (DueFacts { is_planned: false, ..facts() }, DueCondition::IsPlanned),
            (DueFacts { is_schedule_paused: true, ..facts() }, DueCondition::ScheduleGoesOn),
            (DueFacts { due_from: later, ..facts() }, DueCondition::Due),
        ];
        for (facts, reason) in cases {
            assert_eq!(is_due(&facts, DateTime::UNIX_EPOCH), Err(reason));
        }
    }
}
