//! `logs`: the output of a task's handlers, also while they run.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Duration;

use super::end_watch::EndWatch;
use crate::context::Context;
use crate::error::EngineResult;
use taskqueue_domain::monitoring::follow::Followed;
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::{Run, RunOutput, Task};
use taskqueue_host::clock::Moment;
use taskqueue_process::signals::stop_signals::StopSignals;
use taskqueue_store::StoreError;

/// How many attempts of a task are searched for the requested one.
const MOST_RUNS: i64 = 10_000;
/// The output of a handler is saved every few seconds, so more frequent polls find nothing new.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// An update for a caller that follows.
#[derive(Clone, Copy, Debug)]
pub enum LogUpdate<'a> {
    /// The following updates are about this run.
    Run(&'a Run),
    /// New output on `stdout` or `stderr`.
    Text {
        /// The run.
        run: &'a Run,
        /// `stdout` or `stderr`.
        stream: &'a str,
        /// The captured text.
        text: &'a str,
    },
}

/// Whose output is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub enum AskedRun {
    /// The newest run that has started.
    #[default]
    Newest,
    /// The newest run of this attempt: a released run continues under the same number.
    Attempt(i32),
    /// This run.
    Id(RunId),
}

impl From<Option<i32>> for AskedRun {
    fn from(attempt: Option<i32>) -> Self {
        attempt.map_or(Self::Newest, Self::Attempt)
    }
}

/// Returns the started run of a task that is asked for, and its output. `None` if none has started.
///
/// # Errors
/// Returns an error if there is no such task, attempt or run, or if the database fails.
pub fn run_with_output(
    ctx: &mut Context,
    task_id: TaskId,
    asked: AskedRun,
) -> EngineResult<Option<(Run, Vec<RunOutput>)>> {
    let Some(run) = asked_run(ctx, task_id, asked)? else { return Ok(None) };
    let outputs = ctx.store.list_run_outputs(run.id)?;
    Ok(Some((run, outputs)))
}

fn asked_run(ctx: &mut Context, task_id: TaskId, asked: AskedRun) -> EngineResult<Option<Run>> {
    ctx.store.get_task(task_id)?;
    let (found, words) = match asked {
        AskedRun::Newest => return Ok(ctx.store.newest_begun_run(task_id)?),
        AskedRun::Attempt(number) => {
            let mut begun = ctx.store.list_begun_runs(task_id, RunId(0), MOST_RUNS)?.into_iter();
            (begun.find(|run| run.attempt == number), format!("attempt {number}"))
        }
        AskedRun::Id(id) => {
            let run = ctx.store.get_run(id)?;
            (Some(run).filter(|run| run.task_id == task_id && run.started_on.is_some()), format!("run {id}"))
        }
    };
    let missing = || StoreError::NotFound(format!("{words} of task {task_id} that has started")).into();
    found.map(Some).ok_or_else(missing)
}

/// Passes on the output of the newest attempt and of later ones until the task has finished. With `attempt`, passes on the
/// output of this attempt until it has ended. Stops at a signal, or when `hear` returns a break. Returns the task as last read.
///
/// # Errors
/// Returns an error if there is no such task or attempt, or if the database fails.
pub fn follow(
    ctx: &mut Context,
    task_id: TaskId,
    attempt: Option<i32>,
    stop: &StopSignals,
    hear: &mut dyn FnMut(LogUpdate<'_>) -> ControlFlow<()>,
) -> EngineResult<Task> {
    let mut watch = EndWatch::begin(ctx.end_listener.take());
    let followed = follow_with(ctx, &mut watch, task_id, attempt, stop, hear);
    ctx.end_listener = watch.end();
    followed
}

fn follow_with(
    ctx: &mut Context,
    watch: &mut EndWatch,
    task_id: TaskId,
    attempt: Option<i32>,
    stop: &StopSignals,
    hear: &mut dyn FnMut(LogUpdate<'_>) -> ControlFlow<()>,
) -> EngineResult<Task> {
    let mut seen = SeenOutput::default();
    let mut read_at = Moment::now();
    loop {
        // Read before the output: after the end there is no more output.
        let task = ctx.store.get_task(task_id)?;
        let is_settled = task.is_settled();
        // Tasks that finish elsewhere wake this up too.
        if is_settled || read_at.has_passed() {
            let runs = match attempt {
                Some(_) => asked_run(ctx, task_id, attempt.into())?.into_iter().collect(),
                None => seen.runs_to_tell(ctx, task_id)?,
            };
            // A released run continues under the same attempt number.
            let has_ended = |run: &Run| run.finished_on.is_some() && !run.status.is(RunStatus::Released);
            let is_over = is_settled || (attempt.is_some() && runs.iter().all(has_ended));
            for run in &runs {
                if seen.tell(ctx, run, hear)?.is_break() {
                    return Ok(task);
                }
            }
            if is_over {
                return Ok(task);
            }
            read_at = Moment::after(LOOK_EVERY);
        }
        if stop.is_stopping() {
            return Ok(task);
        }
        watch.sleep(ctx.store.url(), stop, read_at.remaining());
    }
}

/// What was passed on so far.
#[derive(Default)]
struct SeenOutput {
    run: Option<RunId>,
    streams: HashMap<String, Followed>,
}

impl SeenOutput {
    /// Returns the started runs from the last reported one, oldest first, so that its last output comes before the next run.
    fn runs_to_tell(&self, ctx: &mut Context, task_id: TaskId) -> EngineResult<Vec<Run>> {
        let Some(last) = self.run else { return Ok(ctx.store.newest_begun_run(task_id)?.into_iter().collect()) };
        let mut runs = ctx.store.list_begun_runs(task_id, last, MOST_RUNS)?;
        runs.reverse();
        Ok(runs)
    }

    fn tell(
        &mut self,
        ctx: &mut Context,
        run: &Run,
        hear: &mut dyn FnMut(LogUpdate<'_>) -> ControlFlow<()>,
    ) -> EngineResult<ControlFlow<()>> {
        if self.run != Some(run.id) {
            (self.run, self.streams) = (Some(run.id), HashMap::new());
            if hear(LogUpdate::Run(run)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        for output in ctx.store.list_run_outputs(run.id)? {
            let text = self.streams.entry(output.stream.clone()).or_default().take_new(&output);
            let is_new = !text.is_empty();
            if is_new && hear(LogUpdate::Text { run, stream: &output.stream, text: &text }).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
