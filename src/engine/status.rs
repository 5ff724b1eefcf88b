//! `status`: what is in the tables and why nothing moves, for a person or a program.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::create_runs::due_facts;
use super::{Context, EngineResult};
use crate::domain::due::{NotDue, is_due};
use crate::domain::ids::TaskId;
use crate::domain::records::{Run, RunOutput, Runner, Task};
use crate::domain::status::{RunStatus, TaskStatus};
use crate::os::identity::{Liveness, ProcessIdentity};
use crate::os::usage::memory_bytes;
pub use crate::store::{Counted, Event, TaskCounts, TaskFilter};

/// Runs and events of one task that are shown at the most.
const DETAIL_LIMIT: i64 = 100;

/// Why a task is where it is; the answer to the question that is asked most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// A runner works on it.
    Running {
        /// PID of the runner.
        process_id: Option<i64>,
        /// Host of the runner.
        host: String,
        /// The claimant that works on it, if it is no runner.
        #[serde(skip_serializing_if = "Option::is_none")]
        claimant: Option<String>,
    },
    /// Its run waits for a runner.
    WaitsForRunner,
    /// Its run waits, and nobody here can execute its class.
    NoHandlerHere,
    /// Its run waits, and the class is held on this host.
    ClassHeld {
        /// Why.
        why: String,
        /// Until then.
        until: DateTime<Utc>,
    },
    /// It is due and waits for `create-runs`.
    WaitsForCreateRuns,
    /// Its time has not come.
    NotYet {
        /// When it comes.
        on: DateTime<Utc>,
        /// Error of the attempt before, if it failed.
        after_error: Option<String>,
    },
    /// Dependencies have not succeeded.
    WaitsForDependencies {
        /// How many.
        count: i32,
    },
    /// It crashed too often: nobody tries it again before an operator says so.
    Quarantined {
        /// Crashes since the last success.
        crashes: i32,
        /// Error of the last attempt.
        error: String,
    },
    /// It failed for good.
    Exhausted {
        /// Error of the last attempt.
        error: String,
    },
    /// It is done.
    Done,
    /// It was cancelled.
    Cancelled,
    /// Its status is one that this version does not know.
    UnknownStatus,
}

/// A task as the list shows it.
#[derive(Clone, Debug)]
pub struct TaskLine {
    /// The task.
    pub task: Task,
    /// Its newest run.
    pub last_run: Option<Run>,
    /// Why it is where it is.
    pub reason: Reason,
}

/// The overview.
#[derive(Clone, Debug)]
pub struct Overview {
    /// The database's clock at that moment.
    pub now: DateTime<Utc>,
    /// The counters.
    pub counts: TaskCounts,
    /// Slots of the runners that have not ended, and the limit.
    pub slots: (i64, i64),
    /// The page.
    pub lines: Vec<TaskLine>,
    /// Whether there are more tasks.
    pub has_more: bool,
}

/// Everything about one task.
#[derive(Clone, Debug)]
pub struct TaskDetail {
    /// The task.
    pub task: Task,
    /// Why it is where it is.
    pub reason: Reason,
    /// Its runs, newest first, each with what its handler wrote.
    pub runs: Vec<(Run, Vec<RunOutput>)>,
    /// What was kept about it, newest first.
    pub events: Vec<Event>,
    /// Claimants that rejected it and are never offered it again.
    pub rejected_by: Vec<String>,
}

/// Counters and a page of tasks.
///
/// # Errors
/// The database's.
pub fn overview(ctx: &mut Context, filter: &TaskFilter) -> EngineResult<Overview> {
    let now = ctx.store.now()?;
    let counts = ctx.store.count_tasks(filter.class.as_deref())?;
    let page = ctx.store.list_tasks(filter)?;
    let in_use = ctx.store.list_live_runners()?.iter().map(|runner| i64::from(runner.slots)).sum();
    let limit = i64::from(ctx.store.settings()?.runner_limit);
    let mut lines = Vec::with_capacity(page.tasks.len());
    for (task, last_run) in page.tasks {
        let reason = reason_of(ctx, &task, last_run.as_ref(), now)?;
        lines.push(TaskLine { task, last_run, reason });
    }
    Ok(Overview { now, counts, slots: (in_use, limit), lines, has_more: page.has_more })
}

/// One task with its runs.
///
/// # Errors
/// There is no such task, or the database's.
pub fn detail(ctx: &mut Context, task_id: TaskId) -> EngineResult<TaskDetail> {
    let now = ctx.store.now()?;
    let task = ctx.store.get_task(task_id)?;
    let mut runs = Vec::new();
    for run in ctx.store.list_runs_of_task(task_id, DETAIL_LIMIT)? {
        let outputs = ctx.store.list_run_outputs(run.id)?;
        runs.push((run, outputs));
    }
    let reason = reason_of(ctx, &task, runs.first().map(|(run, _)| run), now)?;
    let events = ctx.store.list_events_of_task(task_id, DETAIL_LIMIT)?;
    let rejected_by = ctx.store.list_rejections(task_id)?;
    Ok(TaskDetail { task, reason, runs, events, rejected_by })
}

/// The newest runs of all tasks.
///
/// # Errors
/// The database's.
pub fn list_runs(ctx: &mut Context, limit: i64) -> EngineResult<Vec<Run>> {
    Ok(ctx.store.list_newest_runs(limit)?)
}

/// Runs that are processing and that nobody has been heard of for so many seconds: neither renewal, nor heartbeat, nor
/// progress.
///
/// # Errors
/// The database's.
pub fn list_silent_runs(ctx: &mut Context, silent_secs: i64, limit: i64) -> EngineResult<Vec<Run>> {
    Ok(ctx.store.list_silent_runs(silent_secs, limit)?)
}

/// The run that has this token: a claimant's for ever, a runner's while it is processing.
///
/// # Errors
/// The database's.
pub fn find_run_of_token(ctx: &mut Context, token: &str) -> EngineResult<Option<Run>> {
    Ok(ctx.store.find_run_of_token(token)?)
}

/// A runner, and what this host's kernel says about its process.
#[derive(Clone, Debug, Serialize)]
pub struct RunnerLine {
    /// The runner.
    #[serde(flatten)]
    pub runner: Runner,
    /// `alive`, `dead` (its row is still open), `unknown` (another host or container), `ended`.
    pub state: &'static str,
    /// Resident memory in bytes, where its process can be seen from here.
    pub memory_bytes: Option<u64>,
}

/// The newest runners.
///
/// # Errors
/// The database's.
pub fn list_runners(ctx: &mut Context, limit: i64) -> EngineResult<Vec<RunnerLine>> {
    Ok(ctx.store.list_runners(limit)?.into_iter().map(runner_line).collect())
}

fn runner_line(runner: Runner) -> RunnerLine {
    if runner.finished_on.is_some() {
        return RunnerLine { runner, state: "ended", memory_bytes: None };
    }
    let identity = runner.process_identity.parse::<ProcessIdentity>().ok();
    let state = match identity.as_ref().map(ProcessIdentity::liveness) {
        Some(Liveness::Alive) => "alive",
        Some(Liveness::Dead) => "dead",
        Some(Liveness::Unknown) | None => "unknown",
    };
    RunnerLine { runner, state, memory_bytes: identity.as_ref().and_then(memory_bytes) }
}

fn reason_of(ctx: &mut Context, task: &Task, last_run: Option<&Run>, now: DateTime<Utc>) -> EngineResult<Reason> {
    let error = || last_run.map(error_text).unwrap_or_default();
    Ok(match is_due(&due_facts(task), now) {
        Ok(()) => match waiting_run_reason(ctx, task)? {
            Reason::WaitsForRunner => Reason::WaitsForCreateRuns,
            obstacle => obstacle,
        },
        Err(NotDue::Processing) => Reason::Running {
            process_id: last_run.and_then(|run| run.process_id),
            host: last_run.map(|run| run.host.clone()).unwrap_or_default(),
            claimant: last_run.and_then(|run| run.claimant.clone()),
        },
        Err(NotDue::HasOpenRun) => waiting_run_reason(ctx, task)?,
        Err(NotDue::NotYet) => {
            let has_failed = task.status.is(TaskStatus::Failed) || task.status.is(TaskStatus::Timeout);
            Reason::NotYet { on: task.scheduled_on, after_error: has_failed.then(error) }
        }
        Err(NotDue::WaitsForDependencies(count)) => Reason::WaitsForDependencies { count },
        Err(NotDue::Quarantined) => Reason::Quarantined { crashes: task.crashes, error: error() },
        Err(NotDue::Exhausted) => Reason::Exhausted { error: error() },
        Err(NotDue::Succeeded) => Reason::Done,
        Err(NotDue::Cancelled) => Reason::Cancelled,
        Err(NotDue::UnknownStatus(_)) => Reason::UnknownStatus,
    })
}

fn waiting_run_reason(ctx: &mut Context, task: &Task) -> EngineResult<Reason> {
    if ctx.handlers.find(&task.class).is_none() {
        return Ok(Reason::NoHandlerHere);
    }
    let holds = ctx.store.list_class_holds()?;
    let held = holds.into_iter().find(|hold| hold.class == task.class && hold.host == ctx.me.host);
    Ok(held.map_or(Reason::WaitsForRunner, |hold| Reason::ClassHeld { why: hold.reason, until: hold.held_until }))
}

fn error_text(run: &Run) -> String {
    if run.status.is(RunStatus::Success) || run.error_code.is_empty() {
        return String::new();
    }
    format!("{}: {}", run.error_code, run.error_message.lines().next().unwrap_or_default())
}
