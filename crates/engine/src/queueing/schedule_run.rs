//! `schedule run`: queues the task of a schedule now, beside its planned times.

use super::queue::{ClassCheck, queue_one};
use crate::change::schedules::{no_schedule, schedule_of};
use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use taskqueue_domain::task::expiry::{Expiry, MAX_EXPIRY_SECS};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::meta::Meta;
use taskqueue_domain::task::new_task::TaskRequest;
use taskqueue_domain::task::records::TaskSchedule;
use taskqueue_domain::task::unique::Arrival;
use taskqueue_store::NewEvent;

/// How long calls with the same `once` queue one task.
const ONCE_SECS: i64 = 60;

/// Queues a copy of the newest task of a schedule, due now. It does not belong to the schedule, whose next time stays, and it does
/// not have its unique key, which the schedule keeps. An event of the task names the operator and the schedule. Calls with the same
/// `once` queue one task within a minute, and while it has not finished.
///
/// # Errors
/// Returns an error if there is no such schedule, if the class is not known here, or if the database fails.
pub fn run_now(ctx: &mut Context, id: TaskId, check: ClassCheck, once: Option<String>) -> EngineResult<TaskId> {
    let Some(TaskSchedule { id, .. }) = schedule_of(ctx, id)? else { return Err(no_schedule(id)) };
    let Some(task) = ctx.store.list_tasks_of_schedule(id, 1)?.into_iter().next() else { return Err(no_schedule(id)) };
    let meta = task.meta.as_deref().map(Meta::parse).transpose().map_err(EngineError::Input)?;
    // As long after its time as the tasks of the schedule. A window that is set by SQL can be longer than one that is queued.
    let window_secs = task.start_window().map(|window| window.num_seconds().clamp(1, MAX_EXPIRY_SECS));
    let expires = window_secs.map(Expiry::After);
    let request = TaskRequest {
        class: task.class.to_string(),
        data: Some(task.data),
        max_retries: task.max_retries.map(i64::from),
        timeout_secs: task.timeout_secs.map(i64::from),
        priority: Some(task.priority.into()),
        backoff: task.backoff,
        unique_for_secs: once.is_some().then_some(ONCE_SECS),
        unique: once,
        limit_key: task.limit_key,
        tag: task.tag,
        name: task.name,
        keep_secs: task.keep_secs.map(i64::from),
        keep_results_secs: task.keep_results_secs.map(i64::from),
        expires,
        meta: meta.unwrap_or_default(),
        queued_by: ctx.me.user.clone(),
        ..TaskRequest::default()
    };
    let (queued, _) = queue_one(ctx, request, check)?;
    if queued.arrival == Arrival::Queued {
        let event = ctx.operator_event("schedule-run", serde_json::json!({ "schedule": id }));
        // Not an error: the task is queued, and a repeated call would queue another.
        let _ = ctx.store.record_event_once(&NewEvent { task_id: Some(queued.id), ..event });
    }
    Ok(queued.id)
}
