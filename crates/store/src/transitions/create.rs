//! Creates the run of a single task; statements of the engines create the runs of all due tasks.

use diesel::prelude::*;

use crate::backend;
use crate::base::connection::AnyConnection;
use crate::base::schema::{task_queue, task_queue_runs};
use crate::base::sql::db_now;
use crate::journal::audit::{CREATED, newest_run};
use crate::journal::events::insert_event;
use crate::session::origin::Origin;
use crate::{Store, StoreResult};
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::task::ids::{RunId, TaskId};

impl Store {
    /// Creates the run of this task if it is due, and returns its open run, whichever process created it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`](crate::StoreError::NotFound)
    pub fn open_run_of(&mut self, task_id: TaskId) -> StoreResult<Option<RunId>> {
        let auditor = self.auditor()?;
        let (open, kept_after) = self.write(|conn| {
            backend::lock_gate(conn, "create-runs")?;
            backend::enter_both_tables(conn)?;
            let newest = newest_run(conn)?;
            let open = open_run_if_due(conn, task_id, auditor.as_ref())?;
            Ok((open, open.filter(|run| run.0 > newest).map(|_| newest)))
        })?;
        self.give_new_runs_slots(kept_after)?;
        Ok(open)
    }
}

/// What the run of a task copies from it.
#[derive(Queryable, Selectable)]
#[diesel(table_name = task_queue)]
struct DueTask {
    id: i64,
    task_class: String,
    priority: i32,
    attempts: i32,
    limit_key: Option<String>,
    tag: Option<String>,
}

/// Creates the run of a task if it is due, and returns its open run. The caller must hold the lock `create-runs`, or the row
/// because it has just inserted it. The auditor records the creation.
pub(super) fn open_run_if_due(
    conn: &mut AnyConnection,
    task_id: TaskId,
    auditor: Option<&Origin>,
) -> StoreResult<Option<RunId>> {
    use task_queue::dsl;
    let due: Option<DueTask> = dsl::task_queue
        .filter(dsl::id.eq(task_id.0))
        .filter(dsl::due_on.le(db_now().nullable()))
        .select(DueTask::as_select())
        .first(conn)
        .optional()?;
    if let Some(task) = due {
        create_one_run(conn, &task, auditor)?;
    }
    let open: Option<(i64, String)> = task_queue_runs::table
        .filter(task_queue_runs::open_task_id.eq(task_id.0))
        .select((task_queue_runs::id, task_queue_runs::status))
        .first(conn)
        .optional()?;
    let Some((run_id, status)) = open else { return Ok(None) };
    // If it is in progress, its runner marks the task.
    if status == RunStatus::Scheduled.as_str() {
        diesel::update(dsl::task_queue.filter(dsl::id.eq(task_id.0)).filter(dsl::current_run_id.is_null()))
            .set(dsl::current_run_id.eq(run_id))
            .execute(conn)?;
    }
    Ok(Some(RunId(run_id)))
}

fn create_one_run(conn: &mut AnyConnection, task: &DueTask, auditor: Option<&Origin>) -> StoreResult<()> {
    use task_queue_runs::dsl;
    let has_open: bool =
        diesel::select(diesel::dsl::exists(dsl::task_queue_runs.filter(dsl::open_task_id.eq(task.id))))
            .get_result(conn)?;
    if has_open {
        return Ok(());
    }
    diesel::insert_into(dsl::task_queue_runs)
        .values((
            dsl::task_queue_id.eq(task.id),
            dsl::task_class.eq(&task.task_class),
            dsl::priority.eq(task.priority),
            dsl::attempt.eq(task.attempts.saturating_add(1)),
            dsl::limit_key.eq(task.limit_key.as_ref()),
            dsl::tag.eq(task.tag.as_ref()),
        ))
        .execute(conn)?;
    if let Some(origin) = auditor {
        let run_id = RunId(backend::last_inserted_id(conn, "TaskQueueRuns")?);
        insert_event(conn, &origin.event(CREATED, Some(TaskId(task.id)), Some(run_id), serde_json::json!({})))?;
    }
    Ok(())
}
