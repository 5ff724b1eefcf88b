//! `--run`, `--wait` and `wait`: the ends of tasks, by this process or by whoever runs them.

use std::time::Duration;

use super::end_watch::EndWatch;
use crate::running::process_run::{ProcessOptions, ProcessReport, process_runs};
use crate::running::run_listener::RunListener;
use crate::upkeep::create_runs::due_facts;
use crate::{Context, EngineError, EngineResult};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::{Run, RunOutput, Task};
use taskqueue_domain::time::due::is_due;
use taskqueue_host::clock::Moment;
use taskqueue_process::signals::stop_signals::StopSignals;

/// Between two questions whether there is a free slot.
const SLOT_PAUSE: Duration = Duration::from_millis(250);
/// How often a waiting person hears that no runner is alive.
const NO_RUNNER_INTERVAL: Duration = Duration::from_secs(10);
/// Tasks that are asked for at once while one waits for all of them: the others must end, too.
const ASKED_AT_ONCE: usize = 1_000;

/// What a waiting person should hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitNotice {
    /// All runner slots are in use.
    LimitReached {
        /// Slots in use.
        in_use: i64,
        /// The limit.
        limit: i64,
    },
    /// No runner is alive that could process it.
    NoRunner,
}

/// How waiting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited<End> {
    /// What was waited for is there.
    Ended(End),
    /// We were told to stop waiting.
    Stopped,
    /// The limit has passed.
    TooLong,
}

/// A task that has succeeded, is exhausted, quarantined or cancelled.
#[derive(Clone, Debug)]
pub struct EndedTask {
    /// The task.
    pub task: Task,
    /// Its last run.
    pub run: Option<Run>,
    /// What the handler of that run wrote.
    pub outputs: Vec<RunOutput>,
}

/// Hears of a task that has ended; `None` of one that is gone: somebody has deleted it.
pub type OnEnd<'a> = &'a mut dyn FnMut(TaskId, Option<&Task>);

/// How running a task here ended.
#[derive(Clone, Debug)]
pub enum RanHere {
    /// It was processed.
    Processed(ProcessReport),
    /// It was over before; why nothing happens to it any more, in words.
    Over(String),
    /// A signal came first.
    Stopped,
}

/// Why nothing happens to this task any more, in words, if so.
///
/// # Errors
/// The database's.
pub fn why_over(ctx: &mut Context, task_id: TaskId) -> EngineResult<Option<String>> {
    let task = ctx.store.get_task(task_id)?;
    if !task.is_settled() {
        return Ok(None);
    }
    why_not_due(ctx, &task).map(Some)
}

fn why_not_due(ctx: &mut Context, task: &Task) -> EngineResult<String> {
    let now = ctx.store.now()?;
    Ok(match is_due(&due_facts(task), now) {
        Err(reason) => reason.to_string(),
        // Its time came between two questions.
        Ok(()) => "it has just become due".to_owned(),
    })
}

/// Processes the task in this very process, registered as a runner with all rules kept. Waits for a free slot.
///
/// # Errors
/// The task is not due, somebody else processes it, or the database's.
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
        return Err(EngineError::Refused(format!("task {task_id} is queued, but not run now: {why}")));
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

/// Waits until the task has succeeded, is exhausted, quarantined or cancelled, or until the limit has passed.
///
/// # Errors
/// The database's.
pub fn wait_for_task(
    ctx: &mut Context,
    task_id: TaskId,
    stop: &StopSignals,
    limit: Option<Duration>,
    notify: &mut dyn FnMut(WaitNotice),
) -> EngineResult<Waited<EndedTask>> {
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

/// Waits until all of these tasks have ended as [`wait_for_task`] understands it, or one of them has, or until the limit has passed.
///
/// # Errors
/// There is no such task when it begins, or the database's.
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

/// Tells of those of `left` that have ended, and takes them out of it. `None` as long as more of them must end.
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

/// Asks again and again until there is an answer, a signal comes or the limit has passed. Does `before_sleep` where it goes on.
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
