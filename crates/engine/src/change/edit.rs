//! `edit`: other data, another time, other numbers for tasks that are there already.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::json;

use super::selected::{OnAnswer, PORTION, TaskAnswer, key_taken, portions, preview};
use crate::handler::exec::ExecRequest;
use crate::{Context, EngineError, EngineResult};
use taskqueue_domain::run::status::{Stored, TaskStatus};
use taskqueue_domain::run::transition::{TaskEvent, statuses_for};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Task;
use taskqueue_domain::task::task_change::{ChangeRequest, TaskChange};
use taskqueue_domain::task::task_class::EXEC_CLASS;
use taskqueue_store::EditAnswer;

/// What is to be edited, and from which state.
#[derive(Clone, Debug, Default)]
pub struct Edit {
    /// What is to be different.
    pub change: ChangeRequest,
    /// Only if UpdatedOn is this very instant: nobody has changed the task since somebody looked.
    pub if_updated_on: Option<DateTime<Utc>>,
}

/// Returns the statuses in which a task is edited: those of tasks that are not over, which can be cancelled too.
#[must_use]
pub fn editable() -> Vec<TaskStatus> {
    statuses_for(TaskEvent::Cancel)
}

/// Changes each of these tasks. Of one that is processed the next attempt sees it. A run that waits gets the new priority, and
/// is given back if the new time lies ahead.
///
/// # Errors
/// [`EngineError::Input`], and then nothing is changed; or the database's, and then the tasks before stay changed.
pub fn edit_tasks(ctx: &mut Context, ids: &[TaskId], edit: &Edit, on_answer: OnAnswer<'_>) -> EngineResult<()> {
    let change = checked(ctx, ids, edit)?;
    let now = ctx.store.now()?;
    let event = ctx.operator_event("edited", json!({}));
    for portion in portions(ctx, ids) {
        let answers = ctx.store.edit_tasks(portion, &change, edit.if_updated_on, &event)?;
        fault_point!("edit.committed");
        for (id, answer) in portion.iter().zip(answers) {
            on_answer(match answer {
                EditAnswer::Edited(task) => edited(&task, &change, now),
                EditAnswer::Stale(task) => stale(&task),
                EditAnswer::Unknown(task) => unknown(&task),
                EditAnswer::KeyTaken(holder) => key_taken(*id, "edited", &holder),
                EditAnswer::NoSuchTask => TaskAnswer::no_such_task(*id),
            });
        }
    }
    Ok(())
}

/// What `edit_tasks` would do now; changes nothing.
///
/// # Errors
/// [`EngineError::Input`], or the database's.
pub fn preview_edit(ctx: &mut Context, ids: &[TaskId], edit: &Edit, on_answer: OnAnswer<'_>) -> EngineResult<()> {
    let change = checked(ctx, ids, edit)?;
    let now = ctx.store.now()?;
    let outlook = |task: &Task| match edit.if_updated_on {
        Some(version) if version != task.updated_on => stale(task),
        _ if matches!(task.status, Stored::Unknown(_)) => unknown(task),
        _ => {
            let note = kept_time(task, &change, now);
            TaskAnswer::done(task.id, "edited", format!("task {} would be edited{note}", task.id))
        }
    };
    preview(ctx, ids, &outlook, on_answer)
}

pub(crate) fn checked(ctx: &mut Context, ids: &[TaskId], edit: &Edit) -> EngineResult<TaskChange> {
    let settings = ctx.store.settings()?;
    let change = edit.change.clone().validate(&settings).map_err(EngineError::Input)?;
    let Some(data) = &change.data else { return Ok(change) };
    // Its data names the program; the class of a task never changes.
    if let Err(problem) = ExecRequest::parse(data) {
        for portion in ids.chunks(PORTION) {
            if let Some(task) = ctx.store.get_tasks(portion)?.iter().find(|task| task.class.as_str() == EXEC_CLASS) {
                return Err(EngineError::Input(format!("task {}: {problem}", task.id)));
            }
        }
    }
    Ok(change)
}

fn edited(task: &Task, change: &TaskChange, now: DateTime<Utc>) -> TaskAnswer {
    let unseen = if task.status.is(TaskStatus::Processing) { "; the attempt that runs does not see it" } else { "" };
    let kept = kept_time(task, change, now);
    TaskAnswer::done(task.id, "edited", format!("task {} is edited{unseen}{kept}", task.id))
}

/// What is said of a schedule whose task is moved up.
fn kept_time(task: &Task, change: &TaskChange, now: DateTime<Utc>) -> String {
    let moved = change.scheduled_on.and_then(|on| task.planned_on_if_moved_up(on, now));
    let planned = task.schedule.as_ref().and_then(|schedule| schedule.planned_on).filter(|_| moved.is_some());
    planned.map_or_else(String::new, |on| {
        format!(
            "; it runs in addition to its schedule, which still runs on {}",
            on.to_rfc3339_opts(SecondsFormat::Secs, true)
        )
    })
}

fn stale(task: &Task) -> TaskAnswer {
    let message = format!("task {} has been changed since; nothing of it was edited", task.id);
    TaskAnswer { current: Some(Box::new(task.clone())), ..TaskAnswer::refused(task.id, message) }
}

fn unknown(task: &Task) -> TaskAnswer {
    TaskAnswer::refused(task.id, format!("task {} is {}, which this version does not know", task.id, task.status))
}
