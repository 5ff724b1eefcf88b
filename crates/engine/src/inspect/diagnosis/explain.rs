//! `explain`: why a task does not run, or why nothing does, and when that will change.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::StoreError;
use crate::context::Context;
use crate::error::EngineResult;
use crate::inspect::diagnosis::conditions::Inquiry;
pub use crate::inspect::diagnosis::conditions::{Condition, ConditionName};
pub use crate::inspect::diagnosis::reasons::Reason;
use crate::inspect::diagnosis::standstill::{Standstill, standstills};
use crate::upkeep::prune::kept_until;
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::{Run, Task};
use taskqueue_store::TaskCounts;

/// How many dependencies are searched for a circular one.
pub(crate) const CIRCLE_EDGES: i64 = 1_000;

/// The largest number of attempts of a task to show.
const ATTEMPT_LIMIT: i64 = 100;
/// How long a chain of dependencies is followed.
const CHAIN_LIMIT: usize = 20;
/// How many prerequisites are searched for one that blocks the task.
const PREREQUISITE_LIMIT: i64 = 100;
/// How many classes, and how many due tasks, are examined for why nothing moves.
const CLASS_LIMIT: usize = 50;
const DUE_LIMIT: i64 = 20;

/// A task that the explained task waits for, directly or indirectly.
#[derive(Clone, Debug, Serialize)]
pub struct Blocker {
    /// The task.
    pub task_id: TaskId,
    /// Its class.
    pub class: String,
    /// Its reason.
    pub why: Reason,
}

/// When something changes on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NextMoment {
    /// When.
    pub on: DateTime<Utc>,
    /// The task that changes: the explained one, or one that it waits for.
    pub task_id: TaskId,
    /// Which condition of the explained task changes; `None` if it is another task's.
    pub condition: Option<ConditionName>,
}

/// The state of a task and the reasons for it.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The time of the database's clock when it was read.
    pub now: DateTime<Utc>,
    /// The task.
    pub task: Task,
    /// Its newest run.
    pub last_run: Option<Run>,
    /// Every evaluated condition, in the order in which they decide.
    pub conditions: Vec<Condition>,
    /// The chain of tasks that it waits for; everything waits for the last one.
    pub blockers: Vec<Blocker>,
    /// A circular dependency; this task is first and last.
    pub circle: Option<Vec<TaskId>>,
    /// The next change that happens on its own, if it is known.
    pub next: Option<NextMoment>,
    /// Its attempts that have started or ended, oldest first.
    pub attempts: Vec<Run>,
    /// Names similar to its class, if that has no handler.
    pub nearest_classes: Vec<String>,
    /// For a finished task: another task with its unique key, so that it cannot be restarted.
    pub key_holder: Option<TaskId>,
    /// The number of failed attempts after which it is exhausted.
    pub allowed_retries: i32,
    /// When a finished task can be pruned, if there is a limit.
    pub kept_until: Option<DateTime<Utc>>,
}

impl Explanation {
    /// Returns the first unmet condition and its reason; `None` if a runner can take the task now.
    #[must_use]
    pub fn cause(&self) -> Option<(ConditionName, &Reason)> {
        self.conditions.iter().find_map(|condition| Some((condition.condition, condition.why.as_ref()?)))
    }
}

/// The first waiting task of a class.
#[derive(Clone, Debug, Serialize)]
pub struct FirstOfClass {
    /// The class.
    pub class: String,
    /// The task that is processed first.
    pub task_id: TaskId,
    /// Its reason; `None` if a runner can take it now.
    pub why: Option<Reason>,
}

/// Why nothing moves.
#[derive(Clone, Debug)]
pub struct QueueExplanation {
    /// The time of the database's clock when it was read.
    pub now: DateTime<Utc>,
    /// The counters.
    pub counts: TaskCounts,
    /// The slots of live runners, and the limit.
    pub slots: (i64, i64),
    /// Why due or waiting work is not processed, if all of it is affected.
    pub standstills: Vec<Standstill>,
    /// Claimed runs that their runner or claimant will not end.
    pub lost: Vec<(TaskId, Reason)>,
    /// The first waiting or due task of each class.
    pub first: Vec<FirstOfClass>,
    /// The next task that becomes due by its time alone, and when.
    pub next: Option<NextMoment>,
}

/// Explains the state of a task.
///
/// # Errors
/// Returns an error if there is no such task, or if the database fails.
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
    let allowed_retries = ctx.store.settings()?.retries_of(&task);
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
        allowed_retries,
        kept_until,
    })
}

/// Returns its conditions, including a free runner if it has a run.
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

/// Returns the first finished prerequisite, which blocks the task forever; otherwise the first one.
fn blocking_prerequisite(ctx: &mut Context, of: TaskId) -> EngineResult<Option<TaskId>> {
    let open = ctx.store.list_prerequisites(of, true, PREREQUISITE_LIMIT)?;
    let blocking = open.iter().find(|task| task.is_settled).or(open.first());
    Ok(blocking.map(|task| task.id))
}

/// Returns the chain of prerequisites.
fn blockers_of(inquiry: &mut Inquiry<'_>, of: TaskId) -> EngineResult<Vec<Blocker>> {
    let (mut blockers, mut seen) = (Vec::new(), BTreeSet::from([of]));
    let mut next = blocking_prerequisite(inquiry.ctx, of)?;
    while let Some(task_id) = next.filter(|task_id| blockers.len() < CHAIN_LIMIT && seen.insert(*task_id)) {
        let task = match inquiry.ctx.store.get_task(task_id) {
            // The prerequisite was deleted; its line reports that.
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

/// Returns the earliest known change: of the task itself, or of the last task of the chain.
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

/// Explains what in the queue does not move, and why.
///
/// # Errors
/// Returns an error if the database fails.
pub fn explain_queue(ctx: &mut Context) -> EngineResult<QueueExplanation> {
    let counts = ctx.store.count_tasks(None)?;
    let standstills = standstills(ctx)?;
    explain_counted(ctx, counts, standstills)
}

/// Like [`explain_queue`], for a caller that has the counts and standstills.
///
/// # Errors
/// Returns an error if the database fails.
pub fn explain_counted(
    ctx: &mut Context,
    counts: TaskCounts,
    standstills: Vec<Standstill>,
) -> EngineResult<QueueExplanation> {
    let now = ctx.store.now()?;
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
    Ok(QueueExplanation { now, counts, slots: (in_use, limit), standstills, lost, first, next })
}
