//! `edit`: changes the data, the time or other values of existing tasks.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::json;

use super::selected::{OnAnswer, PORTION, TaskAnswer, key_taken, portions};
use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use crate::handler::exec::ExecRequest;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::run::transition::{TaskEvent, statuses_for};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::meta::MAX_META_BYTES;
use taskqueue_domain::task::records::Task;
use taskqueue_domain::task::task_change::{ChangeRequest, TaskChange, TaskVersion};
use taskqueue_domain::task::task_class::EXEC_CLASS;
use taskqueue_store::EditAnswer;

/// The changes, and the state that they require.
#[derive(Clone, Debug, Default)]
pub struct Edit {
    /// The new values.
    pub change: ChangeRequest,
    /// Requires this version, so that the task has not changed since it was read.
    pub if_version: Option<TaskVersion>,
}

/// Returns the statuses in which a task can be edited: those of unfinished tasks, which can also be cancelled.
#[must_use]
pub fn editable() -> Vec<TaskStatus> {
    statuses_for(TaskEvent::Cancel)
}

/// Changes each of these tasks. For a task in progress, the change applies to the next attempt. A waiting run gets the new
/// priority, and is released if the new time is in the future.
///
/// # Errors
/// Returns [`EngineError::Input`] if the edit is invalid; then nothing is changed. Returns an error if the database fails;
/// earlier tasks stay changed.
pub fn edit_tasks(ctx: &mut Context, ids: &[TaskId], edit: &Edit, on_answer: OnAnswer<'_>) -> EngineResult<()> {
    let change = checked(ctx, ids, edit)?;
    let now = ctx.store.now()?;
    let event = ctx.operator_event("edited", json!({}));
    for portion in portions(ctx, ids) {
        let answers = ctx.store.edit_tasks(portion, &change, edit.if_version, &event)?;
        fault_point!("edit.committed");
        for (id, answer) in portion.iter().zip(answers) {
            on_answer(answer_of(*id, answer, |task| edited(task, &change, now)));
        }
    }
    Ok(())
}

/// Reports what `edit_tasks` would do now; changes nothing.
///
/// # Errors
/// Returns [`EngineError::Input`], or an error if the database fails.
pub fn preview_edit(ctx: &mut Context, ids: &[TaskId], edit: &Edit, on_answer: OnAnswer<'_>) -> EngineResult<()> {
    let change = checked(ctx, ids, edit)?;
    let now = ctx.store.now()?;
    let event = ctx.operator_event("edited", json!({}));
    let outlook = |task: &Task| {
        let note = format!("{}{}", kept_time(task, &change, now), unused(task, &change));
        TaskAnswer::done(task.id, "edited", format!("task {} would be edited{note}", task.id))
    };
    for portion in ids.chunks(PORTION) {
        let answers = ctx.store.preview_edits(portion, &change, edit.if_version, &event)?;
        for (id, answer) in portion.iter().zip(answers) {
            on_answer(answer_of(*id, answer, outlook));
        }
    }
    Ok(())
}

/// Returns the answer for a task; `done` gets a task that may be changed, as it was before.
fn answer_of(id: TaskId, answer: EditAnswer, done: impl FnOnce(&Task) -> TaskAnswer) -> TaskAnswer {
    match answer {
        EditAnswer::Edited(task) => done(&task),
        EditAnswer::Stale(task) => stale(&task),
        EditAnswer::Unknown(task) => unknown(&task),
        EditAnswer::KeyTaken(holder) => key_taken(id, "edited", &holder),
        EditAnswer::MetaRefused => TaskAnswer::refused(id, meta_refused(id)),
        EditAnswer::SkipsTime(on) => TaskAnswer::refused(id, skips_time(id, on)),
        EditAnswer::NoSuchTask => TaskAnswer::no_such_task(id),
    }
}

pub(crate) fn checked(ctx: &mut Context, ids: &[TaskId], edit: &Edit) -> EngineResult<TaskChange> {
    let settings = ctx.store.settings()?;
    let change = edit.change.clone().validate(&settings).map_err(EngineError::Input)?;
    let Some(data) = &change.data else { return Ok(change) };
    // The data of an `exec` task names its program; the class of a task never changes.
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
    let unseen = if task.status.is(TaskStatus::Processing) { "; the attempt in progress does not see it" } else { "" };
    let kept = kept_time(task, change, now);
    let unused = unused(task, change);
    TaskAnswer::done(task.id, "edited", format!("task {} is edited{unseen}{kept}{unused}", task.id))
}

/// Returns a note for a finished task: it does not run with the new values unless it is started again. `task` is the task before
/// the change.
fn unused(task: &Task, change: &TaskChange) -> String {
    let is_for_attempts = change.data.is_some()
        || change.scheduled_on.is_some()
        || change.max_retries.is_some()
        || change.timeout_secs.is_some()
        || change.priority.is_some()
        || change.backoff.is_some();
    let may_run_again = change.max_retries.is_some_and(|max| task.is_exhausted() && max > task.failed_retries);
    if !task.is_settled() || !is_for_attempts || may_run_again {
        return String::new();
    }
    format!("; it will not run again unless you run `taskqueue retry {}`", task.id)
}

/// Returns a note for a schedule whose task is moved to an earlier time.
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

fn meta_refused(id: TaskId) -> String {
    format!(
        "task {id} was not edited: its metadata would exceed {MAX_META_BYTES} bytes, or the stored metadata cannot be read"
    )
}

fn skips_time(id: TaskId, on: DateTime<Utc>) -> String {
    format!(
        "task {id} was not edited: its schedule skips {}, and would run then if this task were earlier; `taskqueue schedule run {id}` runs it once more",
        on.to_rfc3339_opts(SecondsFormat::Secs, true)
    )
}

fn stale(task: &Task) -> TaskAnswer {
    let message = format!("task {} has been changed since; it was not edited", task.id);
    TaskAnswer { current: Some(Box::new(task.clone())), ..TaskAnswer::refused(task.id, message) }
}

fn unknown(task: &Task) -> TaskAnswer {
    TaskAnswer::refused(
        task.id,
        format!("task {} has the status {}, which this version does not know", task.id, task.status),
    )
}
