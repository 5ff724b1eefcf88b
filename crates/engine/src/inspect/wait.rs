//! `--run`, `--wait` and `wait`: runs tasks in this process, or waits until others have run them.

use std::time::Duration;

use super::end_watch::EndWatch;
use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use crate::running::process_run::{ProcessOptions, ProcessReport, process_runs};
use crate::running::run_listener::RunListener;
use crate::upkeep::create_runs::due_facts;
use taskqueue_domain::run::due::is_due;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::{Run, RunOutput, Task};
use taskqueue_host::clock::Moment;
use taskqueue_process::signals::stop_signals::StopSignals;

/// The pause between two checks for a free slot.
const SLOT_PAUSE: Duration = Duration::from_millis(250);
/// How often a notice repeats that no runner is alive.
const NO_RUNNER_INTERVAL: Duration = Duration::from_secs(10);
/// How many tasks are read at once while waiting for all of them; the rest must finish too.
const ASKED_AT_ONCE: usize = 1_000;

/// A notice for a caller that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitNotice {
    /// All slots are in use.
    LimitReached {
        /// The slots in use.
        in_use: i64,
        /// The limit.
        limit: i64,
    },
    /// No live runner could process the task.
    NoRunner,
}

/// The result of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited<End> {
    /// The awaited result.
    Ended(End),
    /// A signal stopped the wait.
    Stopped,
    /// The time limit has passed.
    TooLong,
}

/// A task that has succeeded, is exhausted, quarantined or cancelled, or has expired.
#[derive(Clone, Debug)]
pub struct EndedTask {
    /// The task.
    pub task: Task,
    /// Its last run.
    pub run: Option<Run>,
    /// The captured output of that run.
    pub outputs: Vec<RunOutput>,
}

/// Called with each finished task; `None` for a task that was deleted.
pub type OnEnd<'a> = &'a mut dyn FnMut(TaskId, Option<&Task>);

/// The result of running a task in this process.
#[derive(Clone, Debug)]
pub enum RanHere {
    /// It was processed.
    Processed(ProcessReport),
    /// It had finished before; the reason as text.
    Over(String),
    /// A signal came first.
    Stopped,
}

/// Returns why this task will not run again, as text, if so.
///
/// # Errors
/// Returns an error if the database fails.
pub fn why_over(ctx: &mut Context, task_id: TaskId) -> EngineResult<Option<String>> {
    let task = ctx.store.get_task(task_id)?;
    if !task.is_settled() {
        return Ok(None);
    }
    why_not_due(ctx, &task).map(Some)
}

fn why_not_due(ctx: &mut Context, task: &Task) -> EngineResult<String> {
    let now = ctx.store.now()?;
    let facts = due_facts(task);
    Ok(match is_due(&facts, now) {
        Err(unmet) => unmet.why_not(&facts),
        // It became due after the previous check.
        Ok(()) => "it has just become due".to_owned(),
    })
}

/// Processes the task in this process, registered as a runner and subject to all rules. Waits for a free slot.
///
/// # Errors
/// Returns an error if the task is not due, if another process executes it, or if the database fails.
pub fn run_here(
    ctx: &mut Context,
    task_id: TaskId,
    stop: &StopSignals,
    listener: &mut dyn RunListener,
    notify: &mut dyn FnMut(WaitNotice),
) -> EngineResult<RanHere> {
    let Some(run_id) = ctx.store.open_run_of(task_id)? else {
        let task = ctx.store.get_task(task_id)?;
        let why = why_not_due(ctx, &task)?;
        if task.is_settled() {
            return Ok(RanHere::Over(why));
        }
        return Err(EngineError::Refused(format!("task {task_id} is queued, but cannot run now: {why}")));
    };
    let options = ProcessOptions { run_id: Some(run_id), ..ProcessOptions::default() };
    let mut has_notified = false;
    while !stop.is_stopping() {
        let report = process_runs(ctx, &options, stop, listener)?;
        let Some((in_use, limit)) = report.limit_reached else { return Ok(RanHere::Processed(report)) };
        if !has_notified {
            notify(WaitNotice::LimitReached { in_use, limit });
            has_notified = true;
        }
        stop.wait(SLOT_PAUSE);
    }
    Ok(RanHere::Stopped)
}

/// Waits until the task has succeeded, is exhausted, quarantined or cancelled, or has expired, or until the time limit has passed.
///
/// # Errors
/// Returns an error if the database fails.
pub fn wait_for_task(
    ctx: &mut Context,
    task_id: TaskId,
    stop: &StopSignals,
    limit: Option<Duration>,
    notify: &mut dyn FnMut(WaitNotice),
) -> EngineResult<Waited<EndedTask>> {
    ctx.check_family(&[task_id])?;
    let mut notify_after = Moment::now();
    let ask = |ctx: &mut Context| ended_task(ctx, task_id);
    ask_until_ended(ctx, stop, limit, ask, |ctx| notify_of_no_runner(ctx, &mut notify_after, notify))
}

fn ended_task(ctx: &mut Context, task_id: TaskId) -> EngineResult<Option<EndedTask>> {
    let task = ctx.store.get_task(task_id)?;
    if !task.is_settled() {
        return Ok(None);
    }
    let run = ctx.store.list_runs_of_task(task_id, 1)?.into_iter().next();
    let outputs = match &run {
        Some(run) => ctx.store.list_run_outputs(run.id)?,
        None => Vec::new(),
    };
    Ok(Some(EndedTask { task, run, outputs }))
}

fn notify_of_no_runner(
    ctx: &mut Context,
    notify_after: &mut Moment,
    notify: &mut dyn FnMut(WaitNotice),
) -> EngineResult<()> {
    if !notify_after.has_passed() {
        return Ok(());
    }
    if ctx.store.list_live_runners()?.is_empty() {
        notify(WaitNotice::NoRunner);
    }
    *notify_after = Moment::after(NO_RUNNER_INTERVAL);
    Ok(())
}

/// Waits until all of these tasks, or one of them, have finished as for [`wait_for_task`], or until the time limit has passed.
///
/// # Errors
/// Returns an error if one of the tasks does not exist at the start, or if the database fails.
pub fn wait_for_tasks(
    ctx: &mut Context,
    ids: &[TaskId],
    is_one_enough: bool,
    stop: &StopSignals,
    limit: Option<Duration>,
    hear: OnEnd<'_>,
) -> EngineResult<Waited<()>> {
    for part in ids.chunks(ASKED_AT_ONCE) {
        let there = ctx.store.get_tasks(part)?;
        if let Some(missing) = part.iter().find(|id| !there.iter().any(|task| task.id == **id)) {
            ctx.store.get_task(*missing)?;
        }
    }
    let mut left = ids.to_vec();
    ask_until_ended(ctx, stop, limit, |ctx| hear_ends(ctx, &mut left, is_one_enough, hear), |_| Ok(()))
}

/// Reports the finished tasks of `left` and removes them from it. Returns `None` while more must finish.
fn hear_ends(
    ctx: &mut Context,
    left: &mut Vec<TaskId>,
    is_one_enough: bool,
    hear: OnEnd<'_>,
) -> EngineResult<Option<()>> {
    while !left.is_empty() {
        let asked = if is_one_enough { left.len() } else { left.len().min(ASKED_AT_ONCE) };
        let tasks = ctx.store.get_tasks(&left[..asked])?;
        let is_open = |id: &TaskId| tasks.iter().any(|task| task.id == *id && !task.is_settled());
        let ended: Vec<TaskId> = left[..asked].iter().copied().filter(|id| !is_open(id)).collect();
        if ended.is_empty() {
            return Ok(None);
        }
        for id in &ended {
            hear(*id, tasks.iter().find(|task| task.id == *id));
            if is_one_enough {
                return Ok(Some(()));
            }
        }
        left.retain(|id| !ended.contains(id));
    }
    Ok(Some(()))
}

/// Polls until there is a result, a signal comes or the time limit has passed. Calls `before_sleep` before each pause.
fn ask_until_ended<End>(
    ctx: &mut Context,
    stop: &StopSignals,
    limit: Option<Duration>,
    mut ask: impl FnMut(&mut Context) -> EngineResult<Option<End>>,
    mut before_sleep: impl FnMut(&mut Context) -> EngineResult<()>,
) -> EngineResult<Waited<End>> {
    let mut watch = EndWatch::begin(ctx.end_listener.take());
    let until = limit.map(Moment::after);
    let waited = loop {
        if let Some(answer) = ask(ctx).transpose() {
            break answer.map(Waited::Ended);
        }
        if stop.is_stopping() {
            break Ok(Waited::Stopped);
        }
        let left = until.map_or(NO_RUNNER_INTERVAL, Moment::remaining);
        if left.is_zero() {
            break Ok(Waited::TooLong);
        }
        if let Err(error) = before_sleep(ctx) {
            break Err(error);
        }
        watch.sleep(ctx.store.url(), stop, left);
    };
    ctx.end_listener = watch.end();
    waited
}
