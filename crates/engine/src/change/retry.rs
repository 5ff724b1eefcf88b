//! `retry`: restarts a task that failed, is exhausted or quarantined.

use super::edit::{Edit, checked};
use super::restart::{NewStart, places_in_schedules};
use super::selected::{OnAnswer, TaskAnswer, portions, preview};
use crate::context::Context;
use crate::error::EngineResult;
use taskqueue_domain::limits::limit::Rate;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Task;
use taskqueue_domain::task::task_change::ChangeRequest;
use taskqueue_store::Restart;

const RETRY: NewStart = NewStart { result: "retried", becomes: "retried", refused };

/// The statuses from which a task can be retried.
pub const RETRYABLE: [TaskStatus; 2] = [TaskStatus::Failed, TaskStatus::Timeout];

/// Makes each of these tasks due now, with all its retries, if its last attempt failed.
///
/// # Errors
/// Returns an error if the database fails; earlier tasks stay retried.
pub fn retry_tasks(ctx: &mut Context, ids: &[TaskId], on_answer: OnAnswer<'_>) -> EngineResult<()> {
    retry_at_rate(ctx, ids, None, None, on_answer)
}

/// Like [`retry_tasks`]; a rate spreads the tasks over time. `data`, which must have passed [`check_data`], replaces the data
/// of the retried tasks.
///
/// # Errors
/// Returns the same errors as [`retry_tasks`].
pub fn retry_at_rate(
    ctx: &mut Context,
    ids: &[TaskId],
    rate: Option<Rate>,
    data: Option<&str>,
    on_answer: OnAnswer<'_>,
) -> EngineResult<()> {
    let edited = ctx.operator_event("edited", serde_json::json!({}));
    let data = data.map(|data| (data, &edited));
    let event = ctx.operator_event("retried", serde_json::json!({}));
    let mut before = 0;
    for portion in portions(ctx, ids) {
        let places = places_in_schedules(ctx, portion)?;
        let due_in_secs = |place: usize| rate.map_or(0, |rate| rate.secs_until(before + place));
        let answers = ctx.store.restart_tasks(portion, Restart::Retry, &due_in_secs, &event, data)?;
        before += portion.len();
        fault_point!("retry.committed");
        RETRY.tell(ctx, portion, answers, &places, on_answer)?;
    }
    Ok(())
}

/// Checks that these tasks can have this data.
///
/// # Errors
/// Returns [`EngineError::Input`](crate::EngineError::Input) if they cannot, or an error if the database fails.
pub fn check_data(ctx: &mut Context, ids: &[TaskId], data: &str) -> EngineResult<()> {
    let change = ChangeRequest { data: Some(data.to_owned()), ..ChangeRequest::default() };
    checked(ctx, ids, &Edit { change, if_updated_on: None }).map(drop)
}

/// Reports what `retry_tasks` would do now; changes nothing.
///
/// # Errors
/// Returns an error if the database fails.
pub fn preview_retry(ctx: &mut Context, ids: &[TaskId], on_answer: OnAnswer<'_>) -> EngineResult<()> {
    preview(ctx, ids, &outlook, on_answer)
}

fn outlook(task: &Task) -> TaskAnswer {
    let has_failed = RETRYABLE.iter().any(|status| task.status.is(*status));
    RETRY.outlook(task, has_failed)
}

fn refused(id: TaskId, status: &str, has_open_run: bool) -> TaskAnswer {
    let is_over = TaskStatus::parse(status).is_some_and(TaskStatus::is_done);
    let instead = if is_over { "; `requeue` runs it again" } else { "" };
    TaskAnswer::refused(
        id,
        if has_open_run {
            format!("task {id} is already being retried: it has an open run")
        } else {
            format!("task {id} is {status}; only failed and timed-out tasks can be retried{instead}")
        },
    )
}
