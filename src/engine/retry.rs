//! `retry`: a task that failed, is exhausted or quarantined gets a new start.

use super::selected::{Hear, TaskAnswer, key_taken, place_in_schedule, places_in_schedules, portions, preview};
use super::{Context, EngineResult};
use crate::domain::ids::TaskId;
use crate::domain::records::Task;
use crate::domain::selection::{Selection, StatusFilter};
use crate::domain::status::TaskStatus;
use crate::store::{Restart, RestartAnswer};

/// Makes each of these tasks due now, with all its retries, if its last attempt failed.
///
/// # Errors
/// The database's; the tasks before stay retried.
pub fn retry_tasks(ctx: &mut Context, ids: &[TaskId], hear: Hear<'_>) -> EngineResult<()> {
    let event = ctx.operator_event("retried", serde_json::json!({}));
    for portion in portions(ctx, ids) {
        let places = places_in_schedules(ctx, portion)?;
        let answers = ctx.store.restart_tasks(portion, Restart::Retry, &event)?;
        fault_point!("retry.committed");
        for (id, answer) in portion.iter().zip(answers) {
            let place = places.get(id).map_or("", String::as_str);
            hear(match answer {
                RestartAnswer::Done => TaskAnswer::done(*id, "retried", format!("task {id} is tried again{place}")),
                RestartAnswer::KeyTaken(holder) => key_taken(*id, "tried again", &holder),
                RestartAnswer::NoSuchTask => TaskAnswer::no_such_task(*id),
                RestartAnswer::Refused { status, has_open_run } => refused(*id, &status, has_open_run),
            });
        }
    }
    Ok(())
}

/// What `retry_tasks` would do now; changes nothing.
///
/// # Errors
/// The database's.
pub fn preview_retry(ctx: &mut Context, ids: &[TaskId], hear: Hear<'_>) -> EngineResult<()> {
    preview(ctx, ids, &outlook, hear)
}

fn outlook(task: &Task) -> TaskAnswer {
    let has_failed = task.status.is(TaskStatus::Failed) || task.status.is(TaskStatus::Timeout);
    if has_failed && task.current_run_id.is_none() {
        let (id, place) = (task.id, place_in_schedule(task));
        return TaskAnswer::done(id, "retried", format!("task {id} would be tried again{place}"));
    }
    refused(task.id, &task.status.to_string(), task.current_run_id.is_some())
}

fn refused(id: TaskId, status: &str, has_open_run: bool) -> TaskAnswer {
    TaskAnswer::refused(
        id,
        if has_open_run {
            format!("task {id} is being tried already: it has an open run")
        } else {
            format!("task {id} is {status}; only what failed or timed out is tried again")
        },
    )
}

/// Gives every exhausted task of these classes a new start (all classes, if none is named). Returns how many there were.
///
/// # Errors
/// The database's; the tasks before stay retried.
pub fn retry_classes(ctx: &mut Context, classes: &[&str]) -> EngineResult<usize> {
    let ids = ctx.store.select_tasks(&Selection::of_classes(classes, StatusFilter::Exhausted))?;
    let mut retried = 0;
    retry_tasks(ctx, &ids, &mut |answer| retried += usize::from(answer.result.is_some()))?;
    Ok(retried)
}
