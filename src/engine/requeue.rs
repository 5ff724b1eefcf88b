//! `requeue`: a task that is over runs again from the start, as the same row.

use super::restart::{NewStart, places_in_schedules};
use super::selected::{Hear, TaskAnswer, portions, preview};
use super::{Context, EngineResult};
use crate::domain::ids::TaskId;
use crate::domain::records::Task;
use crate::domain::status::{Stored, TaskStatus};
use crate::domain::transition::{TaskEvent, task_after};
use crate::store::Restart;

const REQUEUE: NewStart = NewStart { result: "requeued", becomes: "queued again", refused };

/// Makes each of these tasks due now, as if it had never run, if it has succeeded, failed or was cancelled. Its runs stay.
///
/// # Errors
/// The database's; the tasks before stay requeued.
pub fn requeue_tasks(ctx: &mut Context, ids: &[TaskId], hear: Hear<'_>) -> EngineResult<()> {
    let event = ctx.operator_event("requeued", serde_json::json!({}));
    for portion in portions(ctx, ids) {
        let places = places_in_schedules(ctx, portion)?;
        let answers = ctx.store.restart_tasks(portion, Restart::Requeue, &|_| 0, &event, None)?;
        fault_point!("requeue.committed");
        REQUEUE.tell(portion, answers, &places, hear);
    }
    Ok(())
}

/// What `requeue_tasks` would do now; changes nothing.
///
/// # Errors
/// The database's.
pub fn preview_requeue(ctx: &mut Context, ids: &[TaskId], hear: Hear<'_>) -> EngineResult<()> {
    preview(ctx, ids, &outlook, hear)
}

fn outlook(task: &Task) -> TaskAnswer {
    let is_over = matches!(task.status, Stored::Known(status)
        if task_after(status, TaskEvent::Requeue, TaskStatus::Scheduled).is_some());
    REQUEUE.outlook(task, is_over)
}

fn refused(id: TaskId, status: &str, has_open_run: bool) -> TaskAnswer {
    let why = if has_open_run { "it has an open run" } else { "it is not over" };
    TaskAnswer::refused(id, format!("task {id} is {status}; {why}"))
}
