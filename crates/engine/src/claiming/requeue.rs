//! `requeue`: runs a finished task again from the start, in the same row.

use crate::change::restart::{NewStart, places_in_schedules};
use crate::change::selected::{OnAnswer, PORTION, TaskAnswer, claims_of, portions, preview};
use crate::claiming::take_back::{TakeBackOutcome, TakenBack, take};
use crate::context::Context;
use crate::error::EngineResult;
use taskqueue_domain::run::status::{Stored, TaskStatus};
use taskqueue_domain::run::transition::{TaskEvent, statuses_for, task_after};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::{HeldClaim, Run, Task};
use taskqueue_store::{NewEvent, Restart};

const REQUEUE: NewStart = NewStart { result: "requeued", becomes: "requeued", refused };

/// Returns the statuses from which a task can be requeued. `by_force` adds the status of tasks in progress.
#[must_use]
pub fn requeueable(by_force: bool) -> Vec<TaskStatus> {
    let mut statuses = statuses_for(TaskEvent::Requeue);
    if by_force {
        statuses.push(TaskStatus::Processing);
    }
    statuses
}

/// Makes each of these tasks due now, as if it had never run, if it has succeeded, failed, expired or was cancelled. Its runs are
/// kept.
///
/// # Errors
/// Returns an error if the database fails; earlier tasks stay requeued.
pub fn requeue_tasks(ctx: &mut Context, ids: &[TaskId], on_answer: OnAnswer<'_>) -> EngineResult<()> {
    let event = ctx.operator_event("requeued", serde_json::json!({}));
    for portion in portions(ctx, ids) {
        requeue_portion(ctx, portion, &event, on_answer)?;
    }
    Ok(())
}

/// Like `requeue_tasks`, but first takes the runs in progress from their claimants, as
/// [`take_back`](crate::claiming::take_back::take_back) does.
///
/// # Errors
/// Returns the errors of `requeue_tasks` and of `take_back`; earlier tasks stay requeued.
pub fn requeue_by_force(ctx: &mut Context, ids: &[TaskId], on_answer: OnAnswer<'_>) -> EngineResult<()> {
    let event = ctx.operator_event("requeued", serde_json::json!({}));
    for portion in portions(ctx, ids) {
        let places = places_in_schedules(ctx, portion)?;
        let mut others = portion.to_vec();
        for run in ctx.store.list_claims_of_tasks(portion)? {
            // Each of them may wait for processes to end.
            if ctx.is_stopping() {
                return Ok(());
            }
            if let Some(taken) = take_to_requeue(ctx, &run)? {
                others.retain(|id| *id != run.task_id);
                let place = places.get(&run.task_id).map_or("", String::as_str);
                on_answer(taken_answer(&run, &taken, place));
            }
        }
        requeue_portion(ctx, &others, &event, on_answer)?;
    }
    Ok(())
}

fn requeue_portion(ctx: &mut Context, ids: &[TaskId], event: &NewEvent, on_answer: OnAnswer<'_>) -> EngineResult<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let places = places_in_schedules(ctx, ids)?;
    let answers = ctx.store.restart_tasks(ids, Restart::Requeue, &|_| 0, event, None)?;
    fault_point!("requeue.committed");
    REQUEUE.tell(ctx, ids, answers, &places, on_answer)
}

/// Takes this run from its claimant and restarts its task. Returns `None` if the run was cancelled or had ended, so that the
/// task must still be requeued.
fn take_to_requeue(ctx: &mut Context, run: &Run) -> EngineResult<Option<TakenBack>> {
    let TakeBackOutcome::Taken(taken) = take(ctx, run, true)? else { return Ok(None) };
    let task = ctx.store.get_task(run.task_id)?;
    let may_requeue = matches!(task.status, Stored::Known(status)
        if task_after(status, TaskEvent::Requeue, TaskStatus::Scheduled).is_some());
    Ok((!may_requeue).then_some(taken))
}

fn taken_answer(run: &Run, taken: &TakenBack, place: &str) -> TaskAnswer {
    let id = run.task_id;
    let not_ended = taken.not_ended.as_ref().map(|why| format!("; the claimant may still be working: {why}"));
    let (becomes, claimant) = (REQUEUE.becomes, &taken.claimant);
    let message =
        format!("task {id} is taken from claimant {claimant} and {becomes}{place}{}", not_ended.unwrap_or_default());
    TaskAnswer::done(id, REQUEUE.result, message)
}

/// Reports what `requeue_tasks` would do now; changes nothing.
///
/// # Errors
/// Returns an error if the database fails.
pub fn preview_requeue(ctx: &mut Context, ids: &[TaskId], on_answer: OnAnswer<'_>) -> EngineResult<()> {
    preview(ctx, ids, &outlook, on_answer)
}

/// Reports what `requeue_by_force` would do now; changes nothing.
///
/// # Errors
/// Returns an error if the database fails.
pub fn preview_requeue_by_force(ctx: &mut Context, ids: &[TaskId], on_answer: OnAnswer<'_>) -> EngineResult<()> {
    for portion in ids.chunks(PORTION) {
        let claims = claims_of(ctx, portion)?;
        let outlook = |task: &Task| match claims.get(&task.id) {
            Some(HeldClaim { claimant, .. }) => TaskAnswer::done(
                task.id,
                REQUEUE.result,
                format!("task {} would be taken from claimant {claimant} and {}", task.id, REQUEUE.becomes),
            ),
            None => outlook(task),
        };
        preview(ctx, portion, &outlook, on_answer)?;
    }
    Ok(())
}

fn outlook(task: &Task) -> TaskAnswer {
    let is_over = matches!(task.status, Stored::Known(status)
        if task_after(status, TaskEvent::Requeue, TaskStatus::Scheduled).is_some());
    REQUEUE.outlook(task, is_over)
}

fn refused(id: TaskId, status: &str, has_open_run: bool) -> TaskAnswer {
    let why = if has_open_run { "it has an open run" } else { "it has not finished" };
    TaskAnswer::refused(id, format!("task {id} is {status}; {why}"))
}
