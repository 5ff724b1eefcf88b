//! `retry`: a task that failed, is exhausted or quarantined gets a new start.

use serde::Serialize;

use super::{Context, EngineResult};
use crate::domain::ids::TaskId;
use crate::store::{NewEvent, RetryAnswer};

/// What became of one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Retry {
    /// The task.
    pub id: TaskId,
    /// Whether it is due now.
    pub retried: bool,
    /// Why not; `None` if it is.
    pub refusal: Option<String>,
    /// Whether there is such a task.
    pub exists: bool,
}

/// Makes each of these tasks due now, with all its retries, if its last attempt failed.
///
/// # Errors
/// The database's; the tasks before stay retried.
pub fn retry_tasks(ctx: &mut Context, ids: &[TaskId]) -> EngineResult<Vec<Retry>> {
    ids.iter().map(|id| retry_task(ctx, *id)).collect()
}

fn retry_task(ctx: &mut Context, id: TaskId) -> EngineResult<Retry> {
    let event = NewEvent {
        kind: "retried",
        task_id: Some(id),
        run_id: None,
        actor: ctx.me.user.clone(),
        host: ctx.me.host.clone(),
        details: serde_json::json!({}),
    };
    let (exists, refusal) = match ctx.store.retry_task(id, &event)? {
        RetryAnswer::Retried => (true, None),
        RetryAnswer::NoSuchTask => (false, Some(format!("there is no task {id}"))),
        RetryAnswer::KeyTaken { key, holder, status } => (
            true,
            Some(format!(
                "task {id} is not tried again: task {holder}, queued since, has its key \"{key}\" and is {status}"
            )),
        ),
        RetryAnswer::Refused { has_open_run: true, .. } => {
            (true, Some(format!("task {id} is being tried already: it has an open run")))
        }
        RetryAnswer::Refused { status, .. } => {
            (true, Some(format!("task {id} is {status}; only what failed or timed out is tried again")))
        }
    };
    fault_point!("retry.committed");
    Ok(Retry { id, retried: refusal.is_none(), refusal, exists })
}
