//! Explains why a claim of one task returned nothing.

use chrono::{DateTime, Utc};

use crate::claiming::request::ClaimRequest;
use crate::context::Context;
use crate::error::EngineResult;
use crate::inspect::diagnosis::conditions::{ConditionName, Inquiry};
use crate::inspect::diagnosis::reasons::Reason;
use taskqueue_domain::task::records::{Run, Task};

/// Why the task that a claim names could not be claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyNot {
    /// Its class is not among those that the claim accepts.
    OtherClass,
    /// It does not have the unique key that the claim requires.
    OtherUniqueKey,
    /// It does not have the limit key that the claim requires.
    OtherLimitKey,
    /// It does not have the tag that the claim requires.
    OtherTag,
    /// This claimant has rejected it.
    Rejected,
    /// The lease of this claimant for it expired; until this time only others may claim it.
    HeldBack(DateTime<Utc>),
    /// An unmet condition that applies to every task; `explain` lists all of them.
    Unmet(Reason),
    /// It can be claimed now: the cause has passed.
    NothingNow,
}

/// A task that could not be claimed.
#[derive(Clone, Debug)]
pub struct NotClaimable {
    /// The task.
    pub task: Task,
    /// Its newest run.
    pub last_run: Option<Run>,
    /// Why.
    pub why: WhyNot,
    /// The time of the database's clock when it was read.
    pub now: DateTime<Utc>,
}

/// Returns why the task that a request names cannot be claimed now; `None` if it names none.
///
/// # Errors
/// Returns an error if there is no such task, or if the database fails.
pub fn why_not_claimable(ctx: &mut Context, request: &ClaimRequest) -> EngineResult<Option<NotClaimable>> {
    let Some(task_id) = request.choice.task else { return Ok(None) };
    let now = ctx.store.now()?;
    let task = ctx.store.get_task(task_id)?;
    let last_run = ctx.store.list_runs_of_task(task_id, 1)?.into_iter().next();
    let why = match mismatch(&task, request) {
        Some(why) => why,
        // A rejection is permanent; other conditions pass.
        None if !task.is_settled() && is_rejected(ctx, &task, request)? => WhyNot::Rejected,
        None => match unmet(ctx, &task, last_run.as_ref(), now)? {
            Some(reason) => WhyNot::Unmet(reason),
            None => held_until(ctx, &task, request)?.map_or(WhyNot::NothingNow, WhyNot::HeldBack),
        },
    };
    Ok(Some(NotClaimable { task, last_run, why, now }))
}

impl NotClaimable {
    /// Returns true if this cannot change unless the task is edited.
    #[must_use]
    pub fn is_final(&self) -> bool {
        use WhyNot::{OtherClass, OtherLimitKey, OtherTag, OtherUniqueKey, Rejected};
        self.task.is_settled() || matches!(self.why, OtherClass | OtherUniqueKey | OtherLimitKey | OtherTag | Rejected)
    }
}

/// Returns true if the task that a request names can never be claimed: it has finished, or this claimant may not claim it.
///
/// # Errors
/// Returns an error if the task no longer exists, or if the database fails.
pub(crate) fn is_never_claimable(ctx: &mut Context, request: &ClaimRequest) -> EngineResult<bool> {
    let Some(task_id) = request.choice.task else { return Ok(false) };
    let task = ctx.store.get_task(task_id)?;
    Ok(task.is_settled() || mismatch(&task, request).is_some() || is_rejected(ctx, &task, request)?)
}

/// Returns the first requirement of the request that the task does not meet.
fn mismatch(task: &Task, request: &ClaimRequest) -> Option<WhyNot> {
    let differs = |wanted: &Option<String>, found: &Option<String>| wanted.is_some() && wanted != found;
    if task.class.known().is_some_and(|class| !request.offers(class)) {
        return Some(WhyNot::OtherClass);
    }
    if differs(&request.choice.unique_key, &task.unique_key) {
        return Some(WhyNot::OtherUniqueKey);
    }
    if differs(&request.choice.limit_key, &task.limit_key) {
        return Some(WhyNot::OtherLimitKey);
    }
    differs(&request.choice.tag, &task.tag).then_some(WhyNot::OtherTag)
}

/// Returns the first unmet condition that applies to claimants: they need no handler, and create the run themselves.
fn unmet(ctx: &mut Context, task: &Task, last_run: Option<&Run>, now: DateTime<Utc>) -> EngineResult<Option<Reason>> {
    let conditions = Inquiry::new(ctx, now).conditions_of(task, last_run)?;
    let concerns_claimants = |name: ConditionName| {
        !matches!(name, ConditionName::HasHandler | ConditionName::ClassNotHeld | ConditionName::HasRun)
    };
    let mut concerned = conditions.into_iter().filter(|condition| concerns_claimants(condition.condition));
    Ok(concerned.find_map(|condition| condition.why))
}

fn is_rejected(ctx: &mut Context, task: &Task, request: &ClaimRequest) -> EngineResult<bool> {
    let rejected_by = ctx.store.list_rejections(task.id)?;
    Ok(rejected_by.iter().any(|name| name == request.claimant.as_str()))
}

fn held_until(ctx: &mut Context, task: &Task, request: &ClaimRequest) -> EngineResult<Option<DateTime<Utc>>> {
    let held_back = ctx.store.list_held_back(task.id)?;
    Ok(held_back.into_iter().find(|held| held.claimant == request.claimant.as_str()).map(|held| held.until))
}
