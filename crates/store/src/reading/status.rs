//! The counters and pages of `status`, always read from an index, so that finished rows cost nothing.

use std::cmp::Reverse;
use std::collections::HashMap;

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::result::QueryResult;
use serde::Serialize;

use super::due::{count_due, count_due_of_class};
use crate::base::cells::{Cell, ExactText, ShownText};
use crate::base::connection::AnyConnection;
use crate::base::rows::{RunRow, TaskRow};
use crate::records::notices::count_unreported;

use crate::backend;
use crate::base::counted::{COUNT_LIMIT, Counted, count_up_to};
use crate::base::sql::db_now;
use crate::base::unmarked::{AllUnmarked, is_as_its_row_says};
use crate::{Store, StoreResult};
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::{Run, Task};

/// The value of `Finished` of a task that is not finished.
pub(crate) const NOT_FINISHED: i32 = 0;
/// The value of `Finished` of a finished task.
pub(crate) const FINISHED: i32 = 1;
/// The value of `Finished` of a finished task if it or its class states how long it is kept.
pub(crate) const FINISHED_WITH_KEEP: i32 = 2;
/// The parts of the index of a status, each in the order of `StatusOn`.
pub(crate) const PARTS: [i32; 3] = [NOT_FINISHED, FINISHED, FINISHED_WITH_KEEP];

/// Returns the first `limit` rows of the parts of a status, one part after the other.
pub(crate) fn part_by_part<T>(
    limit: i64,
    mut load: impl FnMut(i32, i64) -> QueryResult<Vec<T>>,
) -> QueryResult<Vec<T>> {
    let mut rows = Vec::new();
    for part in PARTS {
        let missing = limit - i64::try_from(rows.len()).unwrap_or(limit);
        rows.extend(load(part, missing.max(0))?);
    }
    Ok(rows)
}

/// The counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TaskCounts {
    /// Tasks that a runner is processing.
    pub processing: Counted,
    /// Runs that wait for a runner.
    pub waiting_runs: Counted,
    /// Runs that wait for a slot of their limit key.
    pub waiting_for_key: Counted,
    /// Tasks that are due and wait for `create-runs`.
    pub due: Counted,
    /// Scheduled tasks, due or not, without an attempt so far.
    pub scheduled: Counted,
    /// Tasks whose last attempt failed, exhausted or not.
    pub failed: Counted,
    /// Tasks whose last attempt timed out, exhausted or not.
    pub timeout: Counted,
    /// Cancelled tasks.
    pub cancelled: Counted,
    /// Expired tasks.
    pub expired: Counted,
    /// Successful tasks.
    pub success: Counted,
    /// Tasks that crashed too often, which an operator must check.
    pub quarantined: Counted,
    /// Tasks that will not be retried and whose failure was not reported yet.
    pub unreported_failures: Counted,
    /// Seconds for which the first due task has been waiting.
    pub oldest_due_secs: Option<i64>,
}

impl TaskCounts {
    /// Counts tasks whose rows are not yet marked as processing.
    fn knowing(self, unmarked: &AllUnmarked) -> Self {
        let without = |counted: Counted, status| counted.without(unmarked.count_with(status));
        Self {
            processing: self.processing.and(unmarked.count()),
            scheduled: without(self.scheduled, TaskStatus::Scheduled),
            failed: without(self.failed, TaskStatus::Failed),
            timeout: without(self.timeout, TaskStatus::Timeout),
            ..self
        }
    }
}

/// A filter for tasks.
#[derive(Clone, Debug, Default)]
pub struct TaskFilter {
    /// Tasks of this class.
    pub class: Option<String>,
    /// Tasks with one of these statuses; empty means all.
    pub statuses: Vec<TaskStatus>,
    /// The maximum number of tasks.
    pub limit: i64,
}

/// A page of tasks, each with its last run.
#[derive(Clone, Debug)]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<(Task, Option<Run>)>,
    /// Whether there are more.
    pub has_more: bool,
}

impl Store {
    /// Returns the ids of the newest task, run and event: each new row has a higher one.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn newest_ids(&mut self) -> StoreResult<[Option<i64>; 3]> {
        use crate::base::schema::{task_queue, task_queue_events, task_queue_runs};
        macro_rules! newest {
            ($conn:ident, $table:ident) => {
                $table::table.order($table::id.desc()).select($table::id).first($conn).optional()?
            };
        }
        self.read(|conn| {
            Ok([newest!(conn, task_queue), newest!(conn, task_queue_runs), newest!(conn, task_queue_events)])
        })
    }

    /// Returns the counters, for all tasks or for a class.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn count_tasks(&mut self, class: Option<&str>) -> StoreResult<TaskCounts> {
        self.read(|conn| {
            let mut count = |status| count_status(conn, status, class);
            let mut counts = TaskCounts {
                processing: count(TaskStatus::Processing)?,
                scheduled: count(TaskStatus::Scheduled)?,
                failed: count(TaskStatus::Failed)?,
                timeout: count(TaskStatus::Timeout)?,
                cancelled: count(TaskStatus::Cancelled)?,
                expired: count(TaskStatus::Expired)?,
                success: count(TaskStatus::Success)?,
                ..TaskCounts::default()
            };
            counts.waiting_runs = count_waiting_runs(conn, class)?;
            counts.waiting_for_key = count_waiting_for_keys(conn, class, COUNT_LIMIT)?;
            counts.quarantined = count_quarantined(conn, class)?;
            counts.unreported_failures = count_unreported(conn, class)?;
            (counts.due, counts.oldest_due_secs) = match class {
                None => count_due(conn)?,
                Some(class) => count_due_of_class(conn, class)?,
            };
            // After the counts: if a run ends in between, too few are subtracted, and waiting tasks are never missed.
            Ok(counts.knowing(&AllUnmarked::load(conn, class)?))
        })
    }

    /// Returns a page of tasks. Tasks with a status that this version does not know come first (rule R9; only if no status is
    /// given). Then come tasks in progress, failures, waiting tasks and finished tasks. Within each group, the newest come first:
    /// by end time for finished tasks, by `ScheduledOn` for the others.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_tasks(&mut self, filter: &TaskFilter) -> StoreResult<TaskPage> {
        let statuses: &[TaskStatus] = if filter.statuses.is_empty() { &TaskStatus::ALL } else { &filter.statuses };
        self.read(|conn| {
            let mut found: Vec<Task> = Vec::new();
            if filter.statuses.is_empty() {
                found = list_unknown(conn, filter.class.as_deref(), filter.limit + 1)?;
            }
            for status in TaskStatus::ALL.iter().filter(|status| statuses.contains(status)) {
                let missing = filter.limit + 1 - i64::try_from(found.len()).unwrap_or(i64::MAX);
                if missing > 0 {
                    found.extend(list_by_status(conn, status.as_str(), filter.class.as_deref(), missing)?);
                }
                if *status == TaskStatus::Processing {
                    found.extend(list_unmarked(conn, filter.class.as_deref())?);
                }
            }
            let limit = usize::try_from(filter.limit).unwrap_or(usize::MAX);
            let has_more = found.len() > limit;
            found.truncate(limit);
            let tasks = with_last_runs(conn, found.into_iter())?;
            Ok(TaskPage { tasks, has_more })
        })
    }

    /// Returns those of these tasks that exist, in the given order, each with its newest run.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_named_tasks(&mut self, ids: &[TaskId]) -> StoreResult<Vec<(Task, Option<Run>)>> {
        let mut tasks: HashMap<TaskId, Task> = self.get_tasks(ids)?.into_iter().map(|task| (task.id, task)).collect();
        let in_order: Vec<Task> = ids.iter().filter_map(|id| tasks.remove(id)).collect();
        self.read(|conn| with_last_runs(conn, in_order.iter().cloned()))
    }

    /// Returns up to `limit` tasks in this status whose time has come but that are not due for another reason. Unfinished tasks
    /// come first, and within each group the newest.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_passed_tasks(&mut self, status: TaskStatus, limit: i64) -> StoreResult<Vec<Task>> {
        use crate::base::schema::task_queue::dsl::{
            due_on, finished, id, last_status, scheduled_on, status_on, task_queue,
        };
        self.read_each(Task::from, |conn| {
            part_by_part(limit, |part, missing| {
                task_queue
                    .filter(last_status.eq(status.as_str()))
                    .filter(finished.eq(part))
                    .filter(status_on.le(db_now().nullable()))
                    .filter(scheduled_on.le(db_now()))
                    .filter(due_on.is_null())
                    .order((last_status.desc(), finished.desc(), status_on.desc(), id.desc()))
                    .limit(missing)
                    .select(TaskRow::as_select())
                    .load::<TaskRow>(conn)
            })
        })
    }

    /// Returns up to `limit` tasks whose status this version does not know.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_unknown_tasks(&mut self, limit: i64) -> StoreResult<Vec<Task>> {
        self.read(|conn| list_unknown(conn, None, limit))
    }
}

fn count_status(conn: &mut AnyConnection, status: TaskStatus, class: Option<&str>) -> StoreResult<Counted> {
    use crate::base::schema::task_queue::dsl::{id, last_status, task_queue};
    let Some(class) = class else {
        let of_status = task_queue.filter(last_status.eq(status.as_str())).select(id);
        return Ok(count_up_to!(COUNT_LIMIT, of_status, conn)?);
    };
    let count = backend::count_of_class(conn, class, status.as_str(), COUNT_LIMIT + 1)?;
    Ok(Counted::up_to(COUNT_LIMIT, count))
}

fn count_waiting_runs(conn: &mut AnyConnection, class: Option<&str>) -> StoreResult<Counted> {
    use crate::base::schema::task_queue_runs::dsl::{claim_class, id, task_queue_runs};
    Ok(match class {
        None => count_up_to!(COUNT_LIMIT, task_queue_runs.filter(claim_class.is_not_null()).select(id), conn)?,
        Some(class) => count_up_to!(COUNT_LIMIT, task_queue_runs.filter(claim_class.eq(class)).select(id), conn)?,
    })
}

fn count_quarantined(conn: &mut AnyConnection, class: Option<&str>) -> StoreResult<Counted> {
    use crate::base::schema::task_queue::dsl::{id, quarantined_on, task_class, task_queue};
    let quarantined = task_queue.filter(quarantined_on.is_not_null());
    let Some(class) = class else { return Ok(count_up_to!(COUNT_LIMIT, quarantined.select(id), conn)?) };
    // With a condition on the class, SQLite would read all its tasks, quarantined or not.
    let classes: Vec<ShownText> = quarantined.select(task_class).limit(COUNT_LIMIT + 1).load(conn)?;
    Ok(counted_in(&classes, class, COUNT_LIMIT))
}

/// Counts the runs that wait for a slot of their limit key, up to a limit.
pub(super) fn count_waiting_for_keys(
    conn: &mut AnyConnection,
    class: Option<&str>,
    limit: i64,
) -> QueryResult<Counted> {
    use crate::base::schema::task_queue_runs::dsl::{claim_order, id, task_class, task_queue_runs, waiting_key};
    let waiting = task_queue_runs.filter(waiting_key.is_not_null()).order((waiting_key, claim_order, id));
    let Some(class) = class else { return count_up_to!(limit, waiting.select(id), conn) };
    // No index has the class.
    let classes: Vec<ShownText> = waiting.select(task_class).limit(limit + 1).load(conn)?;
    Ok(counted_in(&classes, class, limit))
}

/// Counts a class in the classes of up to one row more than the limit.
fn counted_in(classes: &[ShownText], class: &str, limit: i64) -> Counted {
    let of_class = classes.iter().filter(|found| found.0 == class).count();
    let or_more = i64::try_from(classes.len()).is_ok_and(|all| all > limit);
    Counted { count: i64::try_from(of_class).unwrap_or(i64::MAX), or_more }
}

/// Lists tasks whose status this version does not know. One index probe per status that occurs.
fn list_unknown(conn: &mut AnyConnection, class: Option<&str>, limit: i64) -> StoreResult<Vec<Task>> {
    use crate::base::schema::task_queue::dsl::{last_status, task_queue};
    let mut found = Vec::new();
    let mut last = String::new();
    loop {
        let next: Option<Cell<ExactText>> =
            task_queue.filter(last_status.gt(&last)).order(last_status).select(last_status).first(conn).optional()?;
        let missing = limit - i64::try_from(found.len()).unwrap_or(i64::MAX);
        match next.and_then(|status| status.read("LastStatus").ok()) {
            Some(ExactText(status)) if missing > 0 => {
                if TaskStatus::parse(&status).is_none() {
                    found.extend(list_by_status(conn, &status, class, missing)?);
                }
                last = status;
            }
            _ => return Ok(found),
        }
    }
}

fn list_by_status(conn: &mut AnyConnection, status: &str, class: Option<&str>, limit: i64) -> StoreResult<Vec<Task>> {
    use crate::base::schema::task_queue::dsl::{id, last_status, scheduled_on, task_class, task_queue};
    if let Some(class) = class {
        let of_class =
            task_queue.filter(last_status.eq(status)).filter(task_class.eq(class)).filter(is_as_its_row_says());
        let newest = of_class.order((task_class.desc(), last_status.desc(), scheduled_on.desc(), id.desc()));
        let rows: Vec<TaskRow> = newest.limit(limit).select(TaskRow::as_select()).load(conn)?;
        return Ok(rows.into_iter().map(Task::from).collect());
    }
    let mut found: Vec<(DateTime<Utc>, Task)> = Vec::new();
    for part in PARTS {
        let tasks = load_part(conn, status, part, limit)?.into_iter().map(Task::from);
        found.extend(tasks.map(|task| (if part == NOT_FINISHED { task.scheduled_on } else { task.over_on() }, task)));
    }
    found.sort_by_key(|(on, task)| Reverse((*on, task.id.0)));
    let limit = usize::try_from(limit).unwrap_or(0);
    Ok(found.into_iter().take(limit).map(|(_, task)| task).collect())
}

/// Loads the newest tasks of a part. The order names all columns of the index, so that no planner scans the primary key through
/// all finished tasks.
fn load_part(conn: &mut AnyConnection, status: &str, part: i32, limit: i64) -> StoreResult<Vec<TaskRow>> {
    use crate::base::schema::task_queue::dsl::{finished, id, last_status, status_on, task_queue};
    Ok(task_queue
        .filter(last_status.eq(status))
        .filter(finished.eq(part))
        .filter(is_as_its_row_says())
        .order((last_status.desc(), finished.desc(), status_on.desc(), id.desc()))
        .limit(limit)
        .select(TaskRow::as_select())
        .load(conn)?)
}

/// Lists tasks in progress whose rows are not yet marked so, newest first.
fn list_unmarked(conn: &mut AnyConnection, class: Option<&str>) -> StoreResult<Vec<Task>> {
    use crate::base::schema::task_queue::dsl::{id, task_queue};
    let unmarked = task_queue.filter(id.eq_any(AllUnmarked::load(conn, class)?.ids())).order(id.desc());
    let rows: Vec<TaskRow> = unmarked.select(TaskRow::as_select()).load(conn)?;
    // Tasks that have ended since are listed with their new status.
    Ok(rows.into_iter().map(Task::from).filter(|task| task.status.is(TaskStatus::Processing)).collect())
}

fn with_last_runs(
    conn: &mut AnyConnection,
    tasks: impl Iterator<Item = Task>,
) -> StoreResult<Vec<(Task, Option<Run>)>> {
    let mut found = Vec::new();
    for task in tasks {
        let run = last_run(conn, task.id.0)?;
        found.push((task, run));
    }
    Ok(found)
}

fn last_run(conn: &mut AnyConnection, task_id: i64) -> StoreResult<Option<Run>> {
    use crate::base::schema::task_queue_runs::dsl::{id, task_queue_id, task_queue_runs};
    let row: Option<RunRow> = task_queue_runs
        .filter(task_queue_id.eq(task_id))
        .order((task_queue_id.desc(), id.desc()))
        .select(RunRow::as_select())
        .first(conn)
        .optional()?;
    Ok(row.map(Run::from))
}
