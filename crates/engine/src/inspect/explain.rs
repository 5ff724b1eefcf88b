//! `explain`: why a task does not run, or why nothing does, and when that will change.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::conditions::Inquiry;
pub use super::conditions::{Condition, ConditionName};
pub use super::reasons::Reason;
use super::status::CIRCLE_EDGES;
use crate::upkeep::prune::kept_until;
use crate::{Context, EngineResult, StoreError};
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::{Run, Task};
use taskqueue_store::TaskCounts;

/// Attempts of one task that are shown at the most.
const ATTEMPT_LIMIT: i64 = 100;
/// Tasks that are asked, one after the other, for what keeps the last one waiting.
const CHAIN_LIMIT: usize = 20;
/// Tasks for which one waits among which one is looked for that blocks it.
const PREREQUISITE_LIMIT: i64 = 100;
/// Classes, and due tasks, of which the first is asked why nothing moves.
const CLASS_LIMIT: usize = 50;
const DUE_LIMIT: i64 = 20;

/// A task for which the explained one waits, by itself or through others.
#[derive(Clone, Debug, Serialize)]
pub struct Blocker {
    /// The task.
    pub task_id: TaskId,
    /// Its class.
    pub class: String,
    /// Why it is where it is.
    pub why: Reason,
}

/// When something changes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NextMoment {
    /// When.
    pub on: DateTime<Utc>,
    /// Of which task: the explained one, or one for which it waits.
    pub task_id: TaskId,
    /// Which of the conditions of the explained task it is; none where it is another task's.
    pub condition: Option<ConditionName>,
}

/// Why a task is where it is.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The database's clock at that moment.
    pub now: DateTime<Utc>,
    /// The task.
    pub task: Task,
    /// Its newest run.
    pub last_run: Option<Run>,
    /// Every condition that was asked, in the order in which they decide.
    pub conditions: Vec<Condition>,
    /// What it waits for, each for the next: the last one is what everything waits for.
    pub blockers: Vec<Blocker>,
    /// A circle of tasks that wait for each other, this one first and last.
    pub circle: Option<Vec<TaskId>>,
    /// The next moment at which something changes by itself, where that is known.
    pub next: Option<NextMoment>,
    /// Its attempts that have begun or ended, oldest first.
    pub attempts: Vec<Run>,
    /// Known names like that of its class, where that has no handler.
    pub nearest_classes: Vec<String>,
    /// Of a task that is over: another one that has its unique key, so that it cannot be live again.
    pub key_holder: Option<TaskId>,
    /// Until when it is kept, where it is over and there is a limit.
    pub kept_until: Option<DateTime<Utc>>,
}

impl Explanation {
    /// The first condition that is not met, with the reason; none where a runner can take it now.
    #[must_use]
    pub fn cause(&self) -> Option<(ConditionName, &Reason)> {
        self.conditions.iter().find_map(|condition| Some((condition.condition, condition.why.as_ref()?)))
    }
}

/// What waits of one class, by its first task.
#[derive(Clone, Debug, Serialize)]
pub struct FirstOfClass {
    /// The class.
    pub class: String,
    /// The task that comes first.
    pub task_id: TaskId,
    /// Why it is where it is; none where a runner can take it now.
    pub why: Option<Reason>,
}

/// Why nothing moves.
#[derive(Clone, Debug)]
pub struct QueueExplanation {
    /// The database's clock at that moment.
    pub now: DateTime<Utc>,
    /// The counters.
    pub counts: TaskCounts,
    /// Slots of the runners that live, and the limit.
    pub slots: (i64, i64),
    /// Runs that are claimed, and of those the ones that nobody will end any more.
    pub lost: Vec<(TaskId, Reason)>,
    /// The first task of each class that waits or is due.
    pub first: Vec<FirstOfClass>,
    /// The task that becomes due next by its time alone, and when.
    pub next: Option<NextMoment>,
}

/// Why this task is where it is.
///
/// # Errors
/// There is no such task, or the database's.
pub fn explain_task(ctx: &mut Context, task_id: TaskId) -> EngineResult<Explanation> {
    let now = ctx.store.now()?;
    let task = ctx.store.get_task(task_id)?;
    let mut runs = ctx.store.list_runs_of_task(task_id, ATTEMPT_LIMIT)?;
    let last_run = runs.first().cloned();
    let mut inquiry = Inquiry::new(ctx, now);
    let conditions = with_runner(&mut inquiry, &task, last_run.as_ref())?;
    let waits = conditions.iter().any(|condition| waits_for_others(condition.why.as_ref()));
    let blockers = if waits { blockers_of(&mut inquiry, task_id)? } else { Vec::new() };
    let circle = if blockers.is_empty() { None } else { ctx.store.find_circle_of(task_id, CIRCLE_EDGES)? };
    let has_no_handler = conditions.iter().any(|condition| condition.why == Some(Reason::NoHandlerHere));
    let nearest_classes = if has_no_handler { ctx.handlers.nearest_names(task.class.as_str()) } else { Vec::new() };
    let key_holder = match task.unique_key.as_deref().filter(|_| task.is_settled()) {
        Some(key) => ctx.store.find_key_holder(task.class.as_str(), key)?.filter(|holder| *holder != task_id),
        None => None,
    };
    let next = next_moment(now, task_id, &conditions, &blockers);
    runs.retain(|run| !run.status.is(RunStatus::Scheduled));
    runs.reverse();
    let attempts = runs;
    let kept_until = kept_until(ctx, &task);
    Ok(Explanation {
        now,
        task,
        last_run,
        conditions,
        blockers,
        circle,
        next,
        attempts,
        nearest_classes,
        key_holder,
        kept_until,
    })
}

/// With the question whether a runner can take it, where it has a run.
fn with_runner(inquiry: &mut Inquiry<'_>, task: &Task, last_run: Option<&Run>) -> EngineResult<Vec<Condition>> {
    let mut conditions = inquiry.conditions_of(task, last_run)?;
    if let Some(run) = last_run.filter(|run| run.status.is(RunStatus::Scheduled)) {
        conditions.push(inquiry.runner_is_free(task, run.id)?);
    }
    Ok(conditions)
}

fn waits_for_others(why: Option<&Reason>) -> bool {
    matches!(why, Some(Reason::WaitsForDependencies { .. }))
}

/// Of those for which a task waits one that is over, and so blocks it for ever; otherwise the first.
fn blocking_prerequisite(ctx: &mut Context, of: TaskId) -> EngineResult<Option<TaskId>> {
    let open = ctx.store.list_prerequisites(of, true, PREREQUISITE_LIMIT)?;
    let blocking = open.iter().find(|task| task.is_settled).or(open.first());
    Ok(blocking.map(|task| task.id))
}

/// Follows what each one waits for.
fn blockers_of(inquiry: &mut Inquiry<'_>, of: TaskId) -> EngineResult<Vec<Blocker>> {
    let (mut blockers, mut seen) = (Vec::new(), BTreeSet::from([of]));
    let mut next = blocking_prerequisite(inquiry.ctx, of)?;
    while let Some(task_id) = next.filter(|task_id| blockers.len() < CHAIN_LIMIT && seen.insert(*task_id)) {
        let task = match inquiry.ctx.store.get_task(task_id) {
            // A prerequisite that was deleted: its line says that it is gone.
            Err(StoreError::NotFound(_)) => break,
            found => found?,
        };
        let last_run = inquiry.ctx.store.list_runs_of_task(task_id, 1)?.into_iter().next();
        let why = inquiry.reason_of(&task, last_run.as_ref())?;
        next = if waits_for_others(Some(&why)) { blocking_prerequisite(inquiry.ctx, task_id)? } else { None };
        blockers.push(Blocker { task_id, class: task.class.to_string(), why });
    }
    Ok(blockers)
}

/// The earliest of what is known: of the task itself, and of the one that everything waits for.
fn next_moment(
    now: DateTime<Utc>,
    task_id: TaskId,
    conditions: &[Condition],
    blockers: &[Blocker],
) -> Option<NextMoment> {
    let own = conditions.iter().filter_map(|condition| {
        Some(NextMoment { on: condition.next_on?, task_id, condition: Some(condition.condition) })
    });
    let of_blocker = blockers
        .last()
        .and_then(|blocker| Some(NextMoment { on: blocker.why.next_on()?, task_id: blocker.task_id, condition: None }));
    own.chain(of_blocker).filter(|moment| moment.on > now).min_by_key(|moment| moment.on)
}

/// Why nothing moves at all, or what does.
///
/// # Errors
/// The database's.
pub fn explain_queue(ctx: &mut Context) -> EngineResult<QueueExplanation> {
    let now = ctx.store.now()?;
    let counts = ctx.store.count_tasks(None)?;
    let limit = i64::from(ctx.store.settings()?.runner_limit);
    let next = ctx.store.find_next_due()?.map(|(task_id, on)| NextMoment { on, task_id, condition: None });
    let mut ids = ctx.store.list_first_waiting(CLASS_LIMIT)?;
    ids.extend(ctx.store.list_first_waiting_for_keys(DUE_LIMIT)?);
    ids.extend(ctx.store.list_first_due(DUE_LIMIT)?.into_iter().map(|task| task.id));
    let mut inquiry = Inquiry::new(ctx, now);
    let in_use = inquiry.live_runners()?.iter().map(|runner| i64::from(runner.slots)).sum();
    let lost = inquiry.lost_runs()?;
    let (mut first, mut seen) = (Vec::new(), BTreeSet::new());
    for task_id in ids {
        let found = inquiry.ctx.store.get_tasks(&[task_id])?.into_iter().next();
        let Some(task) = found.filter(|task| seen.insert(task.class.to_string())) else { continue };
        let last_run = inquiry.ctx.store.list_runs_of_task(task.id, 1)?.into_iter().next();
        let conditions = with_runner(&mut inquiry, &task, last_run.as_ref())?;
        let why = conditions.into_iter().find_map(|condition| condition.why);
        first.push(FirstOfClass { class: task.class.to_string(), task_id: task.id, why });
    }
    Ok(QueueExplanation { now, counts, slots: (in_use, limit), lost, first, next })
}
