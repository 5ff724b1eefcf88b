//! `cancel`: cancels waiting tasks at once, and asks runners and claimants to end the runs in progress.

use serde_json::json;

use super::selected::{OnAnswer, TaskAnswer, claims_of, portions, preview};
use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use taskqueue_domain::run::status::{Stored, TaskStatus};
use taskqueue_domain::run::transition::{TaskEvent, statuses_for, task_after};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Task;
use taskqueue_domain::text::reason::parse_reason;
use taskqueue_store::CancelAnswer;

/// The result for a task in progress: its runner or claimant is asked to end it.
pub const REQUESTED: &str = "cancel-requested";

/// Returns the statuses in which a task can be cancelled. `with_dependants` adds the statuses of tasks for which others may still
/// wait.
#[must_use]
pub fn cancellable(with_dependants: bool) -> Vec<TaskStatus> {
    let mut statuses = statuses_for(TaskEvent::Cancel);
    if with_dependants {
        statuses.extend([TaskStatus::Cancelled, TaskStatus::Expired]);
    }
    statuses
}

/// Cancels each of these tasks. For a task in progress, its runner sends TERM to the handler, and KILL after the grace of its
/// class; a handler that has succeeded before that has succeeded. Stores `reason`, or who cancelled if there is none.
///
/// # Errors
/// Returns [`EngineError::Input`], or an error if the database fails; earlier tasks stay cancelled.
pub fn cancel_tasks(
    ctx: &mut Context,
    ids: &[TaskId],
    reason: Option<&str>,
    on_answer: OnAnswer<'_>,
) -> EngineResult<()> {
    let reason =
        parse_reason(reason).map_err(EngineError::Input)?.unwrap_or_else(|| format!("cancelled by {}", ctx.me.user));
    let event = ctx.operator_event("cancelled", json!({ "reason": reason }));
    for portion in portions(ctx, ids) {
        let answers = ctx.store.cancel_tasks(portion, &reason, &event)?;
        fault_point!("cancel.committed");
        ctx.notify_finished();
        let is_claim = |answer: &CancelAnswer| matches!(answer, CancelAnswer::Requested { claimant: Some(_), .. });
        let held = portion.iter().zip(&answers).filter(|(_, answer)| is_claim(answer)).map(|(id, _)| *id);
        let claims = claims_of(ctx, &held.collect::<Vec<_>>())?;
        for (id, answer) in portion.iter().zip(answers) {
            on_answer(match answer {
                CancelAnswer::Cancelled => TaskAnswer::done(*id, "cancelled", format!("task {id} is cancelled")),
                CancelAnswer::Requested { host, claimant, .. } => {
                    TaskAnswer::done(*id, REQUESTED, format!("task {id} {}", who_ends_it(claimant.as_deref(), &host)))
                        .held_by(&claims)
                }
                CancelAnswer::Refused { status } => refused(*id, &status),
                CancelAnswer::NoSuchTask => TaskAnswer::no_such_task(*id),
            });
        }
    }
    Ok(())
}

/// Returns who ends the run. A runner checks for cancels all the time; a claimant finds out at its next call.
fn who_ends_it(claimant: Option<&str>, host: &str) -> String {
    let place = if host.is_empty() { String::new() } else { format!(" on {host}") };
    match claimant {
        None => format!("is being ended by its runner{place}"),
        Some(claimant) => {
            format!("will be ended by claimant {claimant}{place}, which is notified at its next heartbeat")
        }
    }
}

/// Returns these tasks and all tasks that wait for them, directly or indirectly.
///
/// # Errors
/// Returns an error if the database fails.
pub fn with_dependants(ctx: &mut Context, mut ids: Vec<TaskId>) -> EngineResult<Vec<TaskId>> {
    ids.extend(ctx.store.list_all_dependants(&ids)?);
    Ok(ids)
}

/// Reports what `cancel_tasks` would do now; changes nothing.
///
/// # Errors
/// Returns an error if the database fails.
pub fn preview_cancel(ctx: &mut Context, ids: &[TaskId], on_answer: OnAnswer<'_>) -> EngineResult<()> {
    preview(ctx, ids, &outlook, on_answer)
}

fn outlook(task: &Task) -> TaskAnswer {
    let id = task.id;
    match &task.status {
        Stored::Known(TaskStatus::Processing) => {
            TaskAnswer::done(id, REQUESTED, format!("task {id} would be ended by its runner or claimant"))
        }
        Stored::Known(status)
            if task_after(*status, TaskEvent::Cancel, *status).is_some() || task.current_run_id.is_some() =>
        {
            TaskAnswer::done(id, "cancelled", format!("task {id} would be cancelled"))
        }
        status => refused(id, &status.to_string()),
    }
}

fn refused(id: TaskId, status: &str) -> TaskAnswer {
    TaskAnswer::refused(id, format!("task {id} has the status {status}; there is nothing to cancel"))
}
