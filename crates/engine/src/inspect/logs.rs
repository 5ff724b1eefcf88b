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
pub use taskqueue_store::OutputSize;
use taskqueue_store::StoreError;

/// How many attempts of a task are searched for the requested one.
const MOST_RUNS: i64 = 10_000;
/// How often a reader that follows looks for new output.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often a runner is informed that it is followed.
const TELL_EVERY: Duration = Duration::from_secs(5);

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

/// A reader that follows the output of runs in progress.
#[derive(Debug)]
pub struct OutputFollower {
    /// When to inform the runners that they are followed, if they should know.
    tell_at: Option<Moment>,
    seen: HashMap<RunId, OutputSize>,
}

impl OutputFollower {
    /// Begins to follow. If the runners are informed, which writes to the database, they save the output more often.
    #[must_use]
    pub fn new(tells: bool) -> Self {
        Self { tell_at: tells.then(Moment::now), seen: HashMap::new() }
    }

    /// Returns those of these runs whose saved output has changed since the last call, or that this call is the first for. Runners
    /// are informed by the next call: what is there is shown first.
    ///
    /// # Errors
    /// Returns an error if the database cannot be queried.
    pub fn look(&mut self, ctx: &mut Context, runs: &[RunId]) -> EngineResult<Vec<(RunId, OutputSize)>> {
        self.tell(ctx);
        let mut sizes = ctx.store.output_sizes(runs)?;
        self.seen.retain(|run_id, _| runs.contains(run_id));
        sizes.retain(|(run_id, size)| {
            let before = self.seen.insert(*run_id, *size);
            if before.is_none() {
                self.tell_at = self.tell_at.map(|_| Moment::now());
            }
            before != Some(*size)
        });
        Ok(sizes)
    }

    /// Returns whether the next look informs runners.
    #[must_use]
    pub fn is_to_tell(&self) -> bool {
        self.tell_at.is_some_and(Moment::has_passed)
    }

    /// A reader that may not write reads all the same; the output then comes later.
    fn tell(&mut self, ctx: &mut Context) {
        let open: Vec<RunId> = self.seen.iter().filter(|(_, size)| !size.is_final).map(|(run_id, _)| *run_id).collect();
        if open.is_empty() || !self.is_to_tell() {
            return;
        }
        self.tell_at = match ctx.store.follow_runs(&open) {
            Err(StoreError::ReadOnly { .. } | StoreError::Forbidden { .. }) => None,
            Ok(()) | Err(_) => Some(Moment::after(TELL_EVERY)),
        };
    }
}

/// Returns how much output of a run is saved.
///
/// # Errors
/// Returns an error if the database cannot be queried.
pub fn output_size(ctx: &mut Context, run_id: RunId) -> EngineResult<OutputSize> {
    let sizes = ctx.store.output_sizes(&[run_id])?;
    Ok(sizes.first().map_or_else(OutputSize::default, |(_, size)| *size))
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
    follower: Option<OutputFollower>,
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
            *self = Self { run: Some(run.id), ..Self::default() };
            if hear(LogUpdate::Run(run)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        let follower = self.follower.get_or_insert_with(|| OutputFollower::new(true));
        let has_changed = !follower.look(ctx, &[run.id])?.is_empty();
        let outputs = if has_changed { ctx.store.list_run_outputs(run.id)? } else { Vec::new() };
        for output in outputs {
            let text = self.streams.entry(output.stream.clone()).or_default().take_new(&output);
            let is_new = !text.is_empty();
            if is_new && hear(LogUpdate::Text { run, stream: &output.stream, text: &text }).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
