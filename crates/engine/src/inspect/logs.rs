//! `logs`: what the handlers of a task wrote, also while they write.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Duration;

use super::end_watch::EndWatch;
use crate::{Context, EngineResult};
use taskqueue_domain::run::follow::Followed;
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::{Run, RunOutput};
use taskqueue_host::clock::Moment;
use taskqueue_process::signals::stop_signals::StopSignals;
use taskqueue_store::StoreError;

/// Attempts of one task among which the one that is asked for is looked for.
const MOST_RUNS: i64 = 10_000;
/// What a handler writes is saved every few seconds: to look more often brings nothing.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What somebody who follows hears.
#[derive(Clone, Copy, Debug)]
pub enum LogUpdate<'a> {
    /// From now on it is about this run.
    Run(&'a Run),
    /// It wrote this to `stdout` or `stderr`.
    Text {
        /// The run.
        run: &'a Run,
        /// `stdout` or `stderr`
        stream: &'a str,
        /// As far as it was kept.
        text: &'a str,
    },
}

/// The newest run of a task that has begun, or the one with this number, and what it wrote. `None` where none has begun.
///
/// # Errors
/// There is no such task, no such attempt, or the database's.
pub fn run_with_output(
    ctx: &mut Context,
    task_id: TaskId,
    attempt: Option<i32>,
) -> EngineResult<Option<(Run, Vec<RunOutput>)>> {
    let Some(run) = asked_run(ctx, task_id, attempt)? else { return Ok(None) };
    let outputs = ctx.store.list_run_outputs(run.id)?;
    Ok(Some((run, outputs)))
}

fn asked_run(ctx: &mut Context, task_id: TaskId, attempt: Option<i32>) -> EngineResult<Option<Run>> {
    ctx.store.get_task(task_id)?;
    let Some(number) = attempt else { return Ok(ctx.store.newest_begun_run(task_id)?) };
    let begun = ctx.store.list_begun_runs(task_id, RunId(0), MOST_RUNS)?;
    let missing = || StoreError::NotFound(format!("attempt {number} of task {task_id} that has begun")).into();
    begun.into_iter().find(|run| run.attempt == number).map(Some).ok_or_else(missing)
}

/// Tells what the newest attempt has written and writes, and those after it, until nothing happens to the task any more; or what this
/// attempt writes, until it has ended. Or until a signal comes, or nobody listens any more.
///
/// # Errors
/// There is no such task, no such attempt, the listener's, or the database's.
pub fn follow(
    ctx: &mut Context,
    task_id: TaskId,
    attempt: Option<i32>,
    stop: &StopSignals,
    hear: &mut dyn FnMut(LogUpdate<'_>) -> ControlFlow<()>,
) -> EngineResult<()> {
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
) -> EngineResult<()> {
    let mut seen = Seen::default();
    let mut read_at = Moment::now();
    loop {
        // Asked before what was written is read: nothing comes after the end.
        let is_settled = ctx.store.get_task(task_id)?.is_settled();
        // It is woken by the ends of other tasks, too.
        if is_settled || read_at.has_passed() {
            let runs = match attempt {
                Some(_) => asked_run(ctx, task_id, attempt)?.into_iter().collect(),
                None => seen.runs_to_tell(ctx, task_id)?,
            };
            // One that was given back goes on under the same number.
            let has_ended = |run: &Run| run.finished_on.is_some() && !run.status.is(RunStatus::Released);
            let is_over = is_settled || (attempt.is_some() && runs.iter().all(has_ended));
            for run in &runs {
                if seen.tell(ctx, run, hear)?.is_break() {
                    return Ok(());
                }
            }
            if is_over {
                return Ok(());
            }
            read_at = Moment::after(LOOK_EVERY);
        }
        if stop.is_stopping() {
            return Ok(());
        }
        watch.sleep(ctx.store.url(), stop, read_at.remaining());
    }
}

/// What was told.
#[derive(Default)]
struct Seen {
    run: Option<RunId>,
    streams: HashMap<String, Followed>,
}

impl Seen {
    /// Begun runs from the one that was told of last on, oldest first: what it wrote at its end comes before the next one.
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
