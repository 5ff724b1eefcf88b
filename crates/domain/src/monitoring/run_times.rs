//! How long runs waited for their start, and how long they took.

use std::time::Duration;

use chrono::{DateTime, Utc};

/// The times of a run that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedRun {
    /// Number of the attempt.
    pub attempt: i32,
    /// When it was claimed.
    pub started_on: DateTime<Utc>,
    /// When it ended.
    pub finished_on: DateTime<Utc>,
    /// Whether it was released without an outcome.
    pub is_released: bool,
}

/// The times of a task from which those of its runs follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueTimes {
    /// When it was to be processed.
    pub scheduled_on: DateTime<Utc>,
    /// When its last retry was due, or will be.
    pub next_attempt_on: Option<DateTime<Utc>>,
}

/// How long a run waited and took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunTimes {
    /// From the time at which it was due to its start; `None` if that time is not stored any more.
    pub waited: Option<Duration>,
    /// From its start to its end.
    pub took: Duration,
}

/// Returns when an attempt is or was due, as its task states before it starts. `None` for a retry that had not to wait: when the
/// attempt before it ended is not stored in the task.
#[must_use]
pub fn due_on_of(attempt: i32, due: DueTimes) -> Option<DateTime<Utc>> {
    due.next_attempt_on.or_else(|| (attempt <= 1).then_some(due.scheduled_on))
}

/// Returns the times of the runs of a task, which are given oldest first. Released runs have no times.
#[must_use]
pub fn times_of_runs(due: DueTimes, runs: &[EndedRun]) -> Vec<RunTimes> {
    let mut times = Vec::new();
    let mut free_on = None;
    for (place, run) in runs.iter().enumerate() {
        // The task has the time of its newest attempt only.
        let of_newest = due_on_of(run.attempt, due).filter(|on| place + 1 == runs.len() && *on <= run.started_on);
        let of_first = Some(due.scheduled_on).filter(|_| run.attempt <= 1);
        // An attempt cannot start before the one before it has ended.
        let due_on = of_newest.or(of_first).map(|on| free_on.map_or(on, |free_on| on.max(free_on)));
        free_on = Some(run.finished_on);
        let Ok(took) = (run.finished_on - run.started_on).to_std() else { continue };
        if !run.is_released {
            times.push(RunTimes { waited: due_on.and_then(|on| (run.started_on - on).to_std().ok()), took });
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + chrono::TimeDelta::seconds(secs)
    }

    fn run(attempt: i32, from: i64, to: i64) -> EndedRun {
        EndedRun { attempt, started_on: at(from), finished_on: at(to), is_released: false }
    }

    fn secs(due: DueTimes, runs: &[EndedRun]) -> Vec<(Option<u64>, u64)> {
        let times = times_of_runs(due, runs);
        times.iter().map(|times| (times.waited.map(|waited| waited.as_secs()), times.took.as_secs())).collect()
    }

    #[test]
    fn a_run_waits_from_its_time_and_a_retry_from_the_time_of_the_retry() {
        let due = |next: Option<i64>| DueTimes { scheduled_on: at(10), next_attempt_on: next.map(at) };
        assert_eq!(secs(due(None), &[run(1, 12, 15)]), [(Some(2), 3)]);
        // The task waits for its retry.
        assert_eq!(secs(due(Some(75)), &[run(1, 12, 15)]), [(Some(2), 3)]);
        let three = [run(1, 12, 15), run(2, 80, 81), run(3, 200, 204)];
        assert_eq!(secs(due(Some(190)), &three), [(Some(2), 3), (None, 1), (Some(10), 4)]);
        // The last retry had not to wait, so the time of the one before is stored.
        assert_eq!(secs(due(Some(75)), &three[..2]), [(Some(2), 3), (Some(5), 1)]);
        assert_eq!(secs(due(Some(75)), &three), [(Some(2), 3), (None, 1), (Some(119), 4)]);
        assert_eq!(secs(due(None), &three[..2]), [(Some(2), 3), (None, 1)]);
    }

    #[test]
    fn a_released_run_has_no_times_and_its_task_waits_again_after_it() {
        let due = DueTimes { scheduled_on: at(10), next_attempt_on: None };
        let released = EndedRun { is_released: true, ..run(1, 11, 13) };
        assert_eq!(secs(due, &[released, run(1, 20, 21)]), [(Some(7), 1)]);
        // It was started before its time, or the database's clock was set back.
        assert_eq!(secs(due, &[run(1, 5, 6)]), [(None, 1)]);
        assert_eq!(secs(due, &[run(1, 12, 11)]), []);
    }
}
