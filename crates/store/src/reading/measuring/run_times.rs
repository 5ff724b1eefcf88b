//! The times of the newest ended runs of a class. No index contains them: the newest tasks in each status that follows an attempt
//! are found by an index, and their runs by another. So a run costs nothing to count, and the reads are bounded.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use diesel::prelude::*;

use crate::base::cells::{Cell, TimeOrPast};
use crate::base::connection::AnyConnection;
use crate::base::schema::{task_queue, task_queue_runs};
use crate::base::sql::SqlMoment;
use crate::{Store, StoreResult};
use taskqueue_domain::monitoring::run_times::{DueTimes, EndedRun, RunTimes, times_of_runs};
use taskqueue_domain::run::status::{RunStatus, TaskStatus};

/// The statuses of tasks of which an attempt has ended.
const ATTEMPTED: [TaskStatus; 4] =
    [TaskStatus::Success, TaskStatus::Failed, TaskStatus::Timeout, TaskStatus::Cancelled];
/// Tasks whose runs are read at once.
const TASKS_PER_STATEMENT: usize = 250;

/// The task, the run, its attempt, its status, its start and its end.
type RunRow = (i64, i64, i32, String, Option<TimeOrPast>, Option<TimeOrPast>);

impl Store {
    /// Returns the times of at most `most` ended runs of a class, those of its newest tasks.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_run_times(&mut self, class: &str, most: usize) -> StoreResult<Vec<RunTimes>> {
        self.read(|conn| {
            let tasks = newest_tasks(conn, class, most)?;
            let mut times = Vec::new();
            for part in tasks.chunks(TASKS_PER_STATEMENT) {
                if times.len() >= most {
                    break;
                }
                let mut runs = ended_runs(conn, part, most)?;
                let next_attempts = next_attempts(conn, part)?;
                for (scheduled_on, id) in part {
                    let due = DueTimes { scheduled_on: *scheduled_on, next_attempt_on: next_attempts.get(id).copied() };
                    times.extend(times_of_runs(due, &runs.remove(id).unwrap_or_default()));
                }
            }
            times.truncate(most);
            Ok(times)
        })
    }
}

/// Returns when the newest tasks were to be processed, and their ids, newest first.
fn newest_tasks(conn: &mut AnyConnection, class: &str, most: usize) -> StoreResult<Vec<(DateTime<Utc>, i64)>> {
    use task_queue::dsl;
    let limit = i64::try_from(most).unwrap_or(i64::MAX);
    let mut newest: Vec<(DateTime<Utc>, i64)> = Vec::new();
    for status in ATTEMPTED {
        let rows: Vec<(Cell<SqlMoment>, i64)> = dsl::task_queue
            .filter(dsl::task_class.eq(class))
            .filter(dsl::last_status.eq(status.as_str()))
            .order((dsl::task_class.desc(), dsl::last_status.desc(), dsl::scheduled_on.desc(), dsl::id.desc()))
            .limit(limit)
            .select((dsl::scheduled_on, dsl::id))
            .load(conn)?;
        let readable = rows.into_iter().filter_map(|(on, id)| Some((on.read("ScheduledOn").ok()?.into(), id)));
        newest.extend(readable);
    }
    newest.sort_unstable_by(|one, other| other.cmp(one));
    newest.truncate(most);
    Ok(newest)
}

/// Returns the ended runs of these tasks, at most `most`, oldest first for each task. Leaves out the earliest tasks if there are
/// more.
fn ended_runs(
    conn: &mut AnyConnection,
    tasks: &[(DateTime<Utc>, i64)],
    most: usize,
) -> StoreResult<HashMap<i64, Vec<EndedRun>>> {
    use task_queue_runs::dsl;
    let ids: Vec<i64> = tasks.iter().map(|(_, id)| *id).collect();
    let mut rows: Vec<RunRow> = dsl::task_queue_runs
        .filter(dsl::task_queue_id.eq_any(ids))
        .filter(dsl::started_on.is_not_null())
        .filter(dsl::finished_on.is_not_null())
        .order((dsl::task_queue_id.desc(), dsl::id.desc()))
        .limit(i64::try_from(most).unwrap_or(i64::MAX))
        .select((dsl::task_queue_id, dsl::id, dsl::attempt, dsl::status, dsl::started_on, dsl::finished_on))
        .load(conn)?;
    let (first, last) = (rows.first().map(|row| row.0), rows.last().map(|row| row.0));
    if rows.len() >= most && first != last {
        // The limit may have cut off its first runs, and the waits of a run depend on those before it.
        rows.retain(|(task_id, ..)| Some(*task_id) != last);
    }
    rows.sort_unstable_by_key(|(task_id, id, ..)| (*task_id, *id));
    let mut runs: HashMap<i64, Vec<EndedRun>> = HashMap::new();
    for (task_id, _, attempt, status, started_on, finished_on) in rows {
        let (Some(started_on), Some(finished_on)) = (started_on, finished_on) else { continue };
        let is_released = status == RunStatus::Released.as_str();
        let run = EndedRun { attempt, started_on: started_on.into(), finished_on: finished_on.into(), is_released };
        runs.entry(task_id).or_default().push(run);
    }
    Ok(runs)
}

/// Returns NextAttemptOn of those of these tasks that have one.
fn next_attempts(conn: &mut AnyConnection, tasks: &[(DateTime<Utc>, i64)]) -> StoreResult<HashMap<i64, DateTime<Utc>>> {
    use task_queue::dsl;
    let ids: Vec<i64> = tasks.iter().map(|(_, id)| *id).collect();
    let rows: Vec<(i64, Option<Cell<SqlMoment>>)> =
        dsl::task_queue.filter(dsl::id.eq_any(ids)).select((dsl::id, dsl::next_attempt_on)).load(conn)?;
    let readable = |(id, on): (i64, Option<Cell<SqlMoment>>)| Some((id, on?.read("NextAttemptOn").ok()?.into()));
    Ok(rows.into_iter().filter_map(readable).collect())
}
