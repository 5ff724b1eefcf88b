//! `message --task`, `message --class`: messages from outside to the handlers of tasks.

use serde::Serialize;

use crate::{Context, EngineError, EngineResult};
use taskqueue_domain::run::message::{Message, check_message};
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::selection::ClassFilter;
use taskqueue_store::{MESSAGE_TO_TASK, NewEvent, Recipient};

/// What became of a message to a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SentMessage {
    /// The task.
    pub task_id: TaskId,
    /// The run in progress that gets it; `None` if it is kept and none is in progress.
    pub run_id: Option<RunId>,
    /// The host of the runner or claimant of that run; empty if it is not known.
    pub host: String,
    /// The claimant that processes that run; `None` for a runner.
    pub claimant: Option<String>,
    /// Whether all later attempts of the task get it, too.
    pub is_kept: bool,
}

impl SentMessage {
    fn to(recipient: Recipient, is_kept: bool) -> Self {
        let Recipient { task_id, run_id, host, claimant } = recipient;
        Self { task_id, run_id: Some(run_id), host, claimant, is_kept }
    }
}

/// Sends a message to the attempt at this task that is in progress. One that `is_kept` is for every later attempt, too, and
/// none need be in progress.
///
/// # Errors
/// [`EngineError::Input`], [`EngineError::NotInProgress`], there is no such task, or the database's.
pub fn send_to_task(ctx: &mut Context, task_id: TaskId, message: &Message, is_kept: bool) -> EngineResult<SentMessage> {
    check_message(&message.name, &message.data).map_err(EngineError::Input)?;
    ctx.check_family(&[task_id])?;
    let event = event_of(ctx, message);
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

/// Sends a message to all runs in progress of the classes that this name or pattern means. Returns one answer for each.
///
/// # Errors
/// [`EngineError::Input`], or the database's.
pub fn send_to_class(ctx: &mut Context, class: &ClassFilter, message: &Message) -> EngineResult<Vec<SentMessage>> {
    check_message(&message.name, &message.data).map_err(EngineError::Input)?;
    let event = event_of(ctx, message);
    let recipients = ctx.store.broadcast_message(class, &event)?;
    Ok(recipients.into_iter().map(|recipient| SentMessage::to(recipient, false)).collect())
}

fn event_of(ctx: &Context, message: &Message) -> NewEvent {
    NewEvent {
        kind: MESSAGE_TO_TASK,
        task_id: None,
        run_id: None,
        actor: ctx.me.user.clone(),
        host: ctx.me.host.clone(),
        details: message.details(),
    }
}
