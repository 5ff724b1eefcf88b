//! Unmarked tasks: their run is being processed, but their rows do not show it, because a batch start writes no task rows.
//! Queries that read LastStatus, CurrentRunId or DueOn of more than one task use this module.

use std::collections::BTreeSet;

use diesel::dsl::auto_type;
use diesel::prelude::*;

use super::cells::ShownText;
use super::schema::{task_queue, task_queue_runs};
use crate::base::connection::AnyConnection;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::run::transition::unmarked_statuses;

/// The open run of a task. A scalar subquery, because with EXISTS, MariaDB would read all open runs first.
#[auto_type]
pub(crate) fn open_run() -> _ {
    task_queue_runs::table
        .filter(task_queue_runs::open_task_id.eq(task_queue::id.nullable()))
        .select(task_queue_runs::id)
        .single_value()
}

/// The run of a task that is being processed.
#[auto_type]
pub(crate) fn processed_run() -> _ {
    task_queue_runs::table
        .filter(task_queue_runs::open_task_id.eq(task_queue::id.nullable()))
        .filter(task_queue_runs::running_class.is_not_null())
        .select(task_queue_runs::id)
        .single_value()
}

/// The condition that the row of a task shows correctly whether the task is being processed.
#[auto_type]
pub(crate) fn is_as_its_row_says() -> _ {
    task_queue::current_run_id.is_not_null().or(processed_run().is_null())
}

/// An unmarked task.
struct Unmarked {
    id: i64,
    class: String,
    status: String,
}

/// Returns the status of a task with a run in progress, whatever its row shows.
pub(crate) fn status_in_process(last_status: &str) -> Option<TaskStatus> {
    let status = TaskStatus::parse(last_status)?;
    Some(if unmarked_statuses().contains(&status) { TaskStatus::Processing } else { status })
}

/// All unmarked tasks; at most as many as there are runs in progress.
pub(crate) struct AllUnmarked(Vec<Unmarked>);

impl AllUnmarked {
    /// Loads the current ones, of all classes or of one.
    pub(crate) fn load(conn: &mut AnyConnection, class: Option<&str>) -> QueryResult<Self> {
        let rows: Vec<(i64, ShownText, ShownText)> = task_queue_runs::table
            .inner_join(task_queue::table.on(task_queue::id.eq(task_queue_runs::task_queue_id)))
            .filter(task_queue_runs::running_class.is_not_null())
            .filter(task_queue::current_run_id.is_null())
            .select((task_queue::id, task_queue::task_class, task_queue::last_status))
            .load(conn)?;
        let unmarked = rows.into_iter().map(|(id, class, status)| Unmarked { id, class: class.0, status: status.0 });
        let is_meant = |task: &Unmarked| {
            class.is_none_or(|class| task.class == class)
                && status_in_process(&task.status) == Some(TaskStatus::Processing)
        };
        Ok(Self(unmarked.filter(is_meant).collect()))
    }

    /// Returns their ids.
    pub(crate) fn ids(&self) -> BTreeSet<i64> {
        self.0.iter().map(|task| task.id).collect()
    }

    /// Returns how many there are.
    pub(crate) fn count(&self) -> i64 {
        i64::try_from(self.0.len()).unwrap_or(i64::MAX)
    }

    /// Returns how many of them have this status in their rows.
    pub(crate) fn count_with(&self, status: TaskStatus) -> i64 {
        let with = self.0.iter().filter(|task| task.status == status.as_str()).count();
        i64::try_from(with).unwrap_or(i64::MAX)
    }

    /// Returns how many of them belong to this class and have one of these statuses in their rows.
    pub(crate) fn count_of_class(&self, class: &str, statuses: &[TaskStatus]) -> i64 {
        let has_one = |task: &&Unmarked| statuses.iter().any(|status| task.status == status.as_str());
        let with = self.0.iter().filter(|task| task.class == class).filter(has_one).count();
        i64::try_from(with).unwrap_or(i64::MAX)
    }
}
