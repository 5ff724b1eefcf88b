//! `--run`, `--wait` and `wait`: the ends of tasks, by this process or by whoever runs them.

use std::time::Duration;

use super::create_runs::due_facts;
use super::end_watch::EndWatch;
use super::execute::RunListener;
use super::process_run::{ProcessOptions, ProcessReport, process_runs};
use super::{Context, EngineError, EngineResult};
use crate::domain::due::is_due;
use crate::domain::ids::TaskId;
use crate::domain::records::{Run, RunOutput, Task};
use crate::os::clock::Moment;
use crate::os::stop_signals::StopSignals;

/// Between two questions whether there is a free slot.
const SLOT_PAUSE: Duration = Duration::from_millis(250);
/// How often a waiting person hears that no runner is alive.
const NO_RUNNER_INTERVAL: Duration = Duration::from_secs(10);
/// Tasks that are asked for at once while one waits for all of them: the others must end, too.
const ASKED_AT_ONCE: usize = 1_000;

/// What a waiting person should hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitNews {
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
#[derive(Clone, Debug)]
pub enum Waited {
    /// The task succeeded, is exhausted, quarantined or cancelled; with its last run and what the handler wrote.
    Ended(Box<Task>, Option<Box<Run>>, Vec<RunOutput>),
    /// We were told to stop waiting.
    Stopped,
    /// The limit has passed.
    TooLong,
}

/// How waiting for several tasks ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitedForMany {
    /// As many have ended as were waited for.
    Ended,
    /// We were told to stop waiting.
    Stopped,
    /// The limit has passed.
    TooLong,
}

/// Hears of a task that has ended; `None` of one that is gone: somebody has deleted it.
pub type HearEnd<'a> = &'a mut dyn FnMut(TaskId, Option<&Task>);

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
    news: &mut dyn FnMut(WaitNews),
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
    let mut has_told = false;
    while !stop.is_stopping() {
        let report = process_runs(ctx, &options, stop, listener)?;
        let Some((in_use, limit)) = report.limit_reached else { return Ok(RanHere::Processed(report)) };
        if !has_told {
            news(WaitNews::LimitReached { in_use, limit });
            has_told = true;
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
    news: &mut dyn FnMut(WaitNews),
) -> EngineResult<Waited> {
    let mut watch = EndWatch::begin(ctx.end_news.take());
    let waited = wait_with(ctx, &mut watch, task_id, stop, limit, news);
    ctx.end_news = watch.end();
    waited
}

fn wait_with(
    ctx: &mut Context,
    watch: &mut EndWatch,
    task_id: TaskId,
    stop: &StopSignals,
    limit: Option<Duration>,
    news: &mut dyn FnMut(WaitNews),
) -> EngineResult<Waited> {
    let (until, mut tell_after) = (limit.map(Moment::after), Moment::now());
    loop {
        let task = ctx.store.get_task(task_id)?;
        if task.is_settled() {
            let run = ctx.store.list_runs_of_task(task_id, 1)?.into_iter().next();
            let outputs = match &run {
                Some(run) => ctx.store.list_run_outputs(run.id)?,
                None => Vec::new(),
            };
            return Ok(Waited::Ended(Box::new(task), run.map(Box::new), outputs));
        }
        if stop.is_stopping() {
            return Ok(Waited::Stopped);
        }
        let left = until.map_or(NO_RUNNER_INTERVAL, Moment::remaining);
        if left.is_zero() {
            return Ok(Waited::TooLong);
        }
        if tell_after.has_passed() {
            if ctx.store.list_live_runners()?.is_empty() {
                news(WaitNews::NoRunner);
            }
            tell_after = Moment::after(NO_RUNNER_INTERVAL);
        }
        watch.sleep(ctx.store.url(), stop, left);
    }
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
    hear: HearEnd<'_>,
) -> EngineResult<WaitedForMany> {
    for part in ids.chunks(ASKED_AT_ONCE) {
        let there = ctx.store.get_tasks(part)?;
        if let Some(missing) = part.iter().find(|id| !there.iter().any(|task| task.id == **id)) {
            ctx.store.get_task(*missing)?;
        }
    }
    let mut watch = EndWatch::begin(ctx.end_news.take());
    let waited = wait_for_many_with(ctx, &mut watch, ids, is_one_enough, stop, limit, hear);
    ctx.end_news = watch.end();
    waited
}

fn wait_for_many_with(
    ctx: &mut Context,
    watch: &mut EndWatch,
    ids: &[TaskId],
    is_one_enough: bool,
    stop: &StopSignals,
    limit: Option<Duration>,
    hear: HearEnd<'_>,
) -> EngineResult<WaitedForMany> {
    let until = limit.map(Moment::after);
    let mut left = ids.to_vec();
    while !left.is_empty() {
        let asked = if is_one_enough { left.len() } else { left.len().min(ASKED_AT_ONCE) };
        let tasks = ctx.store.get_tasks(&left[..asked])?;
        let is_open = |id: &TaskId| tasks.iter().any(|task| task.id == *id && !task.is_settled());
        let ended: Vec<TaskId> = left[..asked].iter().copied().filter(|id| !is_open(id)).collect();
        for id in &ended {
            hear(*id, tasks.iter().find(|task| task.id == *id));
            if is_one_enough {
                return Ok(WaitedForMany::Ended);
            }
        }
        left.retain(|id| !ended.contains(id));
        if !ended.is_empty() {
            continue;
        }
        if stop.is_stopping() {
            return Ok(WaitedForMany::Stopped);
        }
        let rest = until.map_or(NO_RUNNER_INTERVAL, Moment::remaining);
        if rest.is_zero() {
            return Ok(WaitedForMany::TooLong);
        }
        watch.sleep(ctx.store.url(), stop, rest);
    }
    Ok(WaitedForMany::Ended)
}
