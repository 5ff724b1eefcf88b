//! The state machine: every possible status change, as two tables.
//!
//! The store reads here which status a change may start from and leads to; no other code decides it.

use serde::{Deserialize, Serialize};

use super::status::{RunStatus, TaskStatus};

/// What can happen to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEvent {
    /// A runner claims it.
    Claim,
    /// The handler succeeded.
    Succeed,
    /// The handler failed.
    Fail,
    /// It ran out of time, or its runner died.
    TimeOut,
    /// It was cancelled.
    Cancel,
    /// Its task expired before it was claimed.
    Expire,
    /// It is released without counting the attempt.
    Release,
}

impl RunEvent {
    /// Every event.
    pub const ALL: [Self; 7] =
        [Self::Claim, Self::Succeed, Self::Fail, Self::TimeOut, Self::Cancel, Self::Expire, Self::Release];
}

/// Returns the status of a run in `from` after `event`, or `None` if that is refused. An ended run never changes (rule R3).
#[must_use]
pub const fn run_after(from: RunStatus, event: RunEvent) -> Option<RunStatus> {
    use RunEvent::{Cancel, Claim, Expire, Fail, Release, Succeed, TimeOut};
    use RunStatus::{Processing, Scheduled};
    match (from, event) {
        (Scheduled, Claim) => Some(Processing),
        (Scheduled | Processing, Cancel) | (Scheduled, Expire) => Some(RunStatus::Cancelled),
        (Scheduled | Processing, Release) => Some(RunStatus::Released),
        // A run that cannot be executed (its task was deleted) fails without being claimed.
        (Scheduled | Processing, Fail) => Some(RunStatus::Error),
        (Processing, Succeed) => Some(RunStatus::Success),
        (Processing, TimeOut) => Some(RunStatus::Timeout),
        _ => None,
    }
}

/// What can happen to a task: its run was claimed or ended, or an operator cancelled or retried it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskEvent {
    /// Its open run was claimed.
    Start,
    /// Its run succeeded.
    Succeed,
    /// Its run failed.
    Fail,
    /// Its run timed out.
    TimeOut,
    /// Its run was released: the task returns to its status before the run.
    Release,
    /// It was cancelled.
    Cancel,
    /// It expired: the time before which an attempt had to start has passed.
    Expire,
    /// It had finished and was retried.
    Retry,
}

impl TaskEvent {
    /// Every event.
    pub const ALL: [Self; 8] =
        [Self::Start, Self::Succeed, Self::Fail, Self::TimeOut, Self::Release, Self::Cancel, Self::Expire, Self::Retry];
}

/// Returns the status of a task in `from` after `event`, or `None` if that is refused. `before` is the status of the task before
/// its open run was claimed; the release of the run restores it.
#[must_use]
pub const fn task_after(from: TaskStatus, event: TaskEvent, before: TaskStatus) -> Option<TaskStatus> {
    use TaskStatus::{Cancelled, Expired, Failed, Processing, Scheduled, Success, Timeout};
    match (from, event) {
        // A task that succeeded starts again when it recurs; the due rule decides whether it may.
        (Scheduled | Failed | Timeout | Success, TaskEvent::Start) => Some(Processing),
        (Processing, TaskEvent::Succeed) => Some(Success),
        (Processing, TaskEvent::Fail) => Some(Failed),
        (Processing, TaskEvent::TimeOut) => Some(Timeout),
        (Processing, TaskEvent::Release) => Some(before),
        (Scheduled | Failed | Timeout | Processing, TaskEvent::Cancel) => Some(Cancelled),
        (Scheduled | Failed | Timeout, TaskEvent::Expire) => Some(Expired),
        (Failed | Timeout, TaskEvent::Retry) => Some(from),
        (Success | Cancelled | Expired, TaskEvent::Retry) => Some(Scheduled),
        _ => None,
    }
}

/// Returns what an event of a run means for its task (the aggregation of rule R4).
#[must_use]
pub const fn aggregated(event: RunEvent) -> TaskEvent {
    match event {
        RunEvent::Claim => TaskEvent::Start,
        RunEvent::Succeed => TaskEvent::Succeed,
        RunEvent::Fail => TaskEvent::Fail,
        RunEvent::TimeOut => TaskEvent::TimeOut,
        RunEvent::Cancel => TaskEvent::Cancel,
        RunEvent::Expire => TaskEvent::Expire,
        RunEvent::Release => TaskEvent::Release,
    }
}

/// Returns the status of a task after the release of its run. `ended` is the status of the newest of its runs that counted.
/// Returns `None` for a run that does not count. A task that had succeeded, was cancelled or had expired has another run only
/// because it was retried.
#[must_use]
pub const fn status_before(ended: RunStatus) -> Option<TaskStatus> {
    match ended {
        RunStatus::Success | RunStatus::Cancelled => Some(TaskStatus::Scheduled),
        RunStatus::Error => Some(TaskStatus::Failed),
        RunStatus::Timeout => Some(TaskStatus::Timeout),
        RunStatus::Scheduled | RunStatus::Processing | RunStatus::Released => None,
    }
}

/// Returns the statuses of a task in which this event is possible.
#[must_use]
pub fn statuses_for(event: TaskEvent) -> Vec<TaskStatus> {
    TaskStatus::ALL.into_iter().filter(|status| task_after(*status, event, *status).is_some()).collect()
}

/// Returns the statuses that a task's row can have while its run is being processed and the row is not yet marked so. `success`
/// is not one of them: a task with that status is not due and was not started, so it was set by hand (rule R9).
#[must_use]
pub fn unmarked_statuses() -> Vec<TaskStatus> {
    statuses_for(TaskEvent::Start).into_iter().filter(|status| *status != TaskStatus::Success).collect()
}

/// The largest value of Attempts, FailedRetries and Crashes that the tables accept. A count that has reached it stays there: if its
/// update failed, the run could never be recorded.
pub const MAX_COUNT: i32 = 1_000_000_000;

/// Returns the count after one more, at most [`MAX_COUNT`].
#[must_use]
pub const fn one_more(count: i32) -> i32 {
    if count < MAX_COUNT { count + 1 } else { MAX_COUNT }
}

/// Returns FailedRetries after the event. A success resets it; an error or a timeout adds one. An end that rules out a retry uses
/// up all that are left, so that the task is exhausted.
#[must_use]
pub const fn failed_retries_after(event: TaskEvent, failed_retries: i32, max_retries: i32, may_retry: bool) -> i32 {
    match event {
        TaskEvent::Succeed | TaskEvent::Retry => 0,
        TaskEvent::Fail | TaskEvent::TimeOut => {
            let counted = one_more(failed_retries);
            if may_retry || counted >= max_retries { counted } else { max_retries }
        }
        TaskEvent::Start | TaskEvent::Release | TaskEvent::Cancel | TaskEvent::Expire => failed_retries,
    }
}

/// Returns Crashes after the event. A success resets it; an error without a crash leaves it unchanged.
#[must_use]
pub const fn crashes_after(event: TaskEvent, crashes: i32, is_crash: bool) -> i32 {
    match event {
        TaskEvent::Succeed | TaskEvent::Retry => 0,
        TaskEvent::Fail | TaskEvent::TimeOut if is_crash => one_more(crashes),
        _ => crashes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole table in words, as in the documentation: every other pair is refused.
    const RUN_TABLE: &[(&str, RunEvent, &str)] = &[
        ("scheduled", RunEvent::Claim, "processing"),
        ("scheduled", RunEvent::Cancel, "cancelled"),
        ("scheduled", RunEvent::Expire, "cancelled"),
        ("scheduled", RunEvent::Release, "released"),
        ("scheduled", RunEvent::Fail, "error"),
        ("processing", RunEvent::Cancel, "cancelled"),
        ("processing", RunEvent::Release, "released"),
        ("processing", RunEvent::Fail, "error"),
        ("processing", RunEvent::Succeed, "success"),
        ("processing", RunEvent::TimeOut, "timeout"),
    ];

    #[test]
    fn every_pair_of_run_status_and_event_does_what_the_table_says() {
        for from in RunStatus::ALL {
            for event in RunEvent::ALL {
                let expected = RUN_TABLE
                    .iter()
                    .find(|(status, listed, _)| *status == from.as_str() && *listed == event)
                    .and_then(|(_, _, to)| RunStatus::parse(to));
                assert_eq!(run_after(from, event), expected, "{from} {event:?}");
            }
        }
    }

    #[test]
    fn r3_an_ended_run_never_changes() {
        for from in RunStatus::ALL.into_iter().filter(|status| !status.is_open()) {
            for event in RunEvent::ALL {
                assert_eq!(run_after(from, event), None, "{from} {event:?}");
            }
        }
    }

    #[test]
    fn every_pair_of_task_status_and_event_does_what_the_table_says() {
        use TaskStatus::{Cancelled, Expired, Failed, Processing, Scheduled, Success, Timeout};
        for before in TaskStatus::ALL {
            for from in TaskStatus::ALL {
                for event in TaskEvent::ALL {
                    let expected = match event {
                        TaskEvent::Start if ![Processing, Cancelled, Expired].contains(&from) => Some(Processing),
                        TaskEvent::Cancel if ![Success, Cancelled, Expired].contains(&from) => Some(Cancelled),
                        TaskEvent::Expire if [Scheduled, Failed, Timeout].contains(&from) => Some(Expired),
                        TaskEvent::Succeed if from == Processing => Some(Success),
                        TaskEvent::Fail if from == Processing => Some(Failed),
                        TaskEvent::TimeOut if from == Processing => Some(Timeout),
                        TaskEvent::Release if from == Processing => Some(before),
                        TaskEvent::Retry if [Failed, Timeout].contains(&from) => Some(from),
                        TaskEvent::Retry if [Success, Cancelled, Expired].contains(&from) => Some(Scheduled),
                        _ => None,
                    };
                    assert_eq!(task_after(from, event, before), expected, "{from} {event:?}");
                }
            }
        }
        assert_eq!(task_after(Scheduled, TaskEvent::Start, Scheduled), Some(Processing));
    }

    #[test]
    fn what_is_given_back_is_never_over_by_that() {
        for ended in RunStatus::ALL {
            let is_over =
                matches!(status_before(ended), Some(TaskStatus::Success | TaskStatus::Cancelled | TaskStatus::Expired));
            assert!(!is_over, "{ended}");
        }
        assert_eq!(status_before(RunStatus::Success), Some(TaskStatus::Scheduled));
        assert_eq!(status_before(RunStatus::Timeout), Some(TaskStatus::Timeout));
        assert_eq!(status_before(RunStatus::Released), None);
    }

    #[test]
    fn the_statuses_for_an_event_are_those_that_it_leads_from() {
        use TaskStatus::{Cancelled, Expired, Failed, Processing, Scheduled, Success, Timeout};
        assert_eq!(statuses_for(TaskEvent::Expire), [Failed, Timeout, Scheduled]);
        assert_eq!(statuses_for(TaskEvent::Cancel), [Processing, Failed, Timeout, Scheduled]);
        assert_eq!(statuses_for(TaskEvent::Retry), [Failed, Timeout, Cancelled, Expired, Success]);
    }

    #[test]
    fn r4_a_success_resets_failed_retries_and_a_failure_counts_one() {
        assert_eq!(failed_retries_after(TaskEvent::Succeed, 3, 5, true), 0);
        assert_eq!(failed_retries_after(TaskEvent::Fail, 3, 5, true), 4);
        assert_eq!(failed_retries_after(TaskEvent::TimeOut, 4, 5, true), 5);
        assert_eq!(failed_retries_after(TaskEvent::Release, 3, 5, true), 3);
    }

    #[test]
    fn a_success_resets_crashes_and_nothing_but_a_crash_counts_one() {
        assert_eq!(crashes_after(TaskEvent::Fail, 1, true), 2);
        assert_eq!(crashes_after(TaskEvent::TimeOut, 1, true), 2);
        assert_eq!(crashes_after(TaskEvent::Fail, 1, false), 1);
        assert_eq!(crashes_after(TaskEvent::Release, 1, true), 1);
        assert_eq!(crashes_after(TaskEvent::Succeed, 2, false), 0);
        assert_eq!(crashes_after(TaskEvent::Fail, MAX_COUNT, true), MAX_COUNT);
    }

    #[test]
    fn an_end_without_retry_uses_up_what_was_left() {
        assert_eq!(failed_retries_after(TaskEvent::Fail, 0, 5, false), 5);
        assert_eq!(failed_retries_after(TaskEvent::Fail, 7, 5, false), 8);
        assert_eq!(failed_retries_after(TaskEvent::Fail, MAX_COUNT, 5, true), MAX_COUNT);
    }
}
