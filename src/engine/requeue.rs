//! `requeue`: a task that is over runs again from the start, as the same row.

use super::selected::{Hear, TaskAnswer, key_taken, place_in_schedule, places_in_schedules, portions, preview};
use super::{Context, EngineResult};
use crate::domain::ids::TaskId;
use crate::domain::records::Task;
use crate::domain::status::{Stored, TaskStatus};
use crate::domain::transition::{TaskEvent, task_after};
use crate::store::{Restart, RestartAnswer};

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
        for (id, answer) in portion.iter().zip(answers) {
            let place = places.get(id).map_or("", String::as_str);
            hear(match answer {
                RestartAnswer::Done => TaskAnswer::done(*id, "requeued", format!("task {id} is queued again{place}")),
                RestartAnswer::KeyTaken(holder) => key_taken(*id, "queued again", &holder),
                RestartAnswer::NoSuchTask => TaskAnswer::no_such_task(*id),
                RestartAnswer::Refused { status, has_open_run } => refused(*id, &status, has_open_run),
            });
        }
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
    if is_over && task.current_run_id.is_none() {
        let (id, place) = (task.id, place_in_schedule(task));
        return TaskAnswer::done(id, "requeued", format!("task {id} would be queued again{place}"));
    }
    refused(task.id, &task.status.to_string(), task.current_run_id.is_some())
}

fn refused(id: TaskId, status: &str, has_open_run: bool) -> TaskAnswer {
    let why = if has_open_run { "it has an open run" } else { "it is not over" };
    TaskAnswer::refused(id, format!("task {id} is {status}; {why}"))
}
