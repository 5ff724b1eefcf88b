//! Tasks whose run is being processed and whose rows do not say so yet: the start of many runs writes no row of a task. What
//! reads LastStatus, CurrentRunId or DueOn of more than one task goes through here.

use std::collections::BTreeSet;

use diesel::dsl::auto_type;
use diesel::prelude::*;

use super::cells::ShownText;
use super::schema::{task_queue, task_queue_runs};
use crate::backend::AnyConnection;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::run::transition::unmarked_statuses;

/// The open run of a task. A value, not an EXISTS: MariaDB would read all open runs first.
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

/// Whether the row of a task says rightly whether the task is processed.
#[auto_type]
pub(crate) fn is_as_its_row_says() -> _ {
    task_queue::current_run_id.is_not_null().or(processed_run().is_null())
}

/// Such a task.
struct Unmarked {
    id: i64,
    class: String,
    status: String,
}

/// The status of a task of which a run is being processed, whatever its row says.
pub(crate) fn status_in_process(last_status: &str) -> Option<TaskStatus> {
    let status = TaskStatus::parse(last_status)?;
    Some(if unmarked_statuses().contains(&status) { TaskStatus::Processing } else { status })
}

/// All of them, as many at the most as runs are being processed.
pub(crate) struct AllUnmarked(Vec<Unmarked>);

impl AllUnmarked {
    /// Those of this moment, of all classes or of one.
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

    /// Their ids.
    pub(crate) fn ids(&self) -> BTreeSet<i64> {
        self.0.iter().map(|task| task.id).collect()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> i64 {
        i64::try_from(self.0.len()).unwrap_or(i64::MAX)
    }

    /// How many of them have this status in their rows.
    pub(crate) fn count_with(&self, status: TaskStatus) -> i64 {
        let with = self.0.iter().filter(|task| task.status == status.as_str()).count();
        i64::try_from(with).unwrap_or(i64::MAX)
    }

    /// How many of them are of this class and count as failed in their rows.
    pub(crate) fn count_failed(&self, class: &str) -> i64 {
        let has_failed = |task: &&Unmarked| {
            [TaskStatus::Failed, TaskStatus::Timeout].iter().any(|status| task.status == status.as_str())
        };
        let failed = self.0.iter().filter(|task| task.class == class).filter(has_failed).count();
        i64::try_from(failed).unwrap_or(i64::MAX)
    }
}
