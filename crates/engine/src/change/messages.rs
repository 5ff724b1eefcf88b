//! `message --task`, `message --class`: sends messages to the handlers of tasks.

use serde::Serialize;

use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use taskqueue_domain::run::message::{Message, check_message};
use taskqueue_domain::task::choosing::selection::ClassFilter;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_store::{MESSAGE_TO_TASK, Recipient};

/// The result of sending a message to a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SentMessage {
    /// The task.
    pub task_id: TaskId,
    /// The run in progress that receives it; `None` if it is kept and no run is in progress.
    pub run_id: Option<RunId>,
    /// The host of the runner or claimant of that run; empty if unknown.
    pub host: String,
    /// The claimant of that run; `None` for a runner.
    pub claimant: Option<String>,
    /// Whether all later attempts of the task receive it too.
    pub is_kept: bool,
}

impl SentMessage {
    fn to(recipient: Recipient, is_kept: bool) -> Self {
        let Recipient { task_id, run_id, host, claimant } = recipient;
        Self { task_id, run_id: Some(run_id), host, claimant, is_kept }
    }
}

/// Sends a message to the current attempt of this task. A message with `is_kept` is also delivered to every later attempt, and
/// does not require one in progress.
///
/// # Errors
/// Returns [`EngineError::Input`] or [`EngineError::NotInProgress`], or an error if there is no such task or the database
/// fails.
pub fn send_to_task(ctx: &mut Context, task_id: TaskId, message: &Message, is_kept: bool) -> EngineResult<SentMessage> {
    check_message(&message.name, &message.data).map_err(EngineError::Input)?;
    ctx.check_family(&[task_id])?;
    let event = ctx.me.event(MESSAGE_TO_TASK, message.details());
    let task = ctx.store.get_task(task_id)?;
    let is_kept_for_later = is_kept && !task.is_settled();
    match ctx.store.send_message(task_id, &event, is_kept_for_later)? {
        Some(recipient) => Ok(SentMessage::to(recipient, is_kept_for_later)),
        None if is_kept_for_later => {
            Ok(SentMessage { task_id, run_id: None, host: String::new(), claimant: None, is_kept: true })
        }
        None => {
            Err(EngineError::NotInProgress { task_id, status: task.status.to_string(), is_settled: task.is_settled() })
        }
    }
}

/// Sends a message to all runs in progress of the classes that match this name or pattern. Returns one result for each.
///
/// # Errors
/// Returns [`EngineError::Input`], or an error if the database fails.
pub fn send_to_class(ctx: &mut Context, class: &ClassFilter, message: &Message) -> EngineResult<Vec<SentMessage>> {
    check_message(&message.name, &message.data).map_err(EngineError::Input)?;
    let event = ctx.me.event(MESSAGE_TO_TASK, message.details());
    let recipients = ctx.store.broadcast_message(class, &event)?;
    Ok(recipients.into_iter().map(|recipient| SentMessage::to(recipient, false)).collect())
}
