//! What the verbs for several tasks share: selecting tasks, changing them in portions, and reporting each result.

use std::collections::HashMap;

use serde::Serialize;

use crate::context::Context;
use crate::error::EngineResult;
use taskqueue_domain::task::choosing::selection::{PageStart, Selection};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::{HeldClaim, Run, Task};
use taskqueue_store::Holder;

/// How many tasks are changed in one transaction; limits how long others wait.
pub(crate) const PORTION: usize = 100;

/// The result for one task, or the expected one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskAnswer {
    /// The task.
    pub id: TaskId,
    /// Whether the task exists.
    pub exists: bool,
    /// What was done to it, as one word; `None` if it was refused.
    pub result: Option<&'static str>,
    /// The result as text to display, or why it was refused.
    pub message: String,
    /// The current task, if it was refused because it differs from what the caller expected.
    #[serde(skip)]
    pub current: Option<Box<Task>>,
    /// The claim that has the task, if the verb cannot end it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<Box<HeldClaim>>,
}

impl TaskAnswer {
    pub(crate) fn done(id: TaskId, result: &'static str, message: String) -> Self {
        Self { id, exists: true, result: Some(result), message, current: None, claim: None }
    }

    pub(crate) fn refused(id: TaskId, message: String) -> Self {
        Self { id, exists: true, result: None, message, current: None, claim: None }
    }

    pub(crate) fn no_such_task(id: TaskId) -> Self {
        let message = format!("there is no task {id}");
        Self { id, exists: false, result: None, message, current: None, claim: None }
    }

    /// Adds the claim of this task, if it is among these.
    pub(crate) fn held_by(self, claims: &HashMap<TaskId, HeldClaim>) -> Self {
        let claim = claims.get(&self.id).cloned().map(Box::new);
        Self { claim, ..self }
    }
}

/// Called with each answer.
pub type OnAnswer<'a> = &'a mut dyn FnMut(TaskAnswer);

/// Returns the tasks that a selection matches now.
///
/// # Errors
/// Returns an error if the database fails.
pub fn select_tasks(ctx: &mut Context, selection: &Selection) -> EngineResult<Vec<TaskId>> {
    ctx.check_family_of(selection)?;
    Ok(ctx.store.select_tasks(selection)?)
}

/// Returns the oldest tasks that a selection matches now, at most this many, and whether there are more.
///
/// # Errors
/// Returns an error if the database fails.
pub fn select_oldest(ctx: &mut Context, selection: &Selection, most: usize) -> EngineResult<(Vec<TaskId>, bool)> {
    ctx.check_family_of(selection)?;
    let limit = i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1);
    let page = ctx.store.select_page(selection, PageStart::OLDEST, limit)?;
    let mut ids: Vec<TaskId> = page.into_iter().map(|place| place.id).collect();
    let has_more = ids.len() > most;
    ids.truncate(most);
    Ok((ids, has_more))
}

/// Returns the oldest of these tasks, this many of them; without a number, all of them as they are given.
#[must_use]
pub fn oldest(mut ids: Vec<TaskId>, count: Option<usize>) -> Vec<TaskId> {
    if let Some(count) = count {
        ids.sort_unstable();
        ids.truncate(count);
    }
    ids
}

/// Returns these tasks in portions, until this process is asked to stop.
pub(crate) fn portions<'a>(ctx: &Context, ids: &'a [TaskId]) -> impl Iterator<Item = &'a [TaskId]> + use<'a> {
    let is_stopping = ctx.stop_question();
    ids.chunks(PORTION).take_while(move |_| !is_stopping())
}

/// Returns the claims that have these tasks. Without tasks, it runs no query.
///
/// # Errors
/// Returns an error if the database fails.
pub(crate) fn claims_of(ctx: &mut Context, ids: &[TaskId]) -> EngineResult<HashMap<TaskId, HeldClaim>> {
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let claims = ctx.store.list_claims_of_tasks(ids)?;
    Ok(claims.iter().filter_map(Run::held_claim).map(|claim| (claim.task_id, claim)).collect())
}

/// Reports `outlook` for each task, and changes nothing.
pub(crate) fn preview(
    ctx: &mut Context,
    ids: &[TaskId],
    outlook: &dyn Fn(&Task) -> TaskAnswer,
    on_answer: OnAnswer<'_>,
) -> EngineResult<()> {
    for portion in ids.chunks(PORTION) {
        let tasks = ctx.store.get_tasks(portion)?;
        for id in portion {
            let found = tasks.iter().find(|task| task.id == *id);
            on_answer(found.map_or_else(|| TaskAnswer::no_such_task(*id), outlook));
        }
    }
    Ok(())
}

/// Returns the answer for a task that cannot be restarted because another task has its key.
pub(crate) fn key_taken(id: TaskId, what: &str, holder: &Holder) -> TaskAnswer {
    let Holder { id: other, key, .. } = holder;
    // Without its status: a handler may read that of its children only.
    TaskAnswer::refused(id, format!("task {id} is not {what}: task {other}, queued since, has its key \"{key}\""))
}
