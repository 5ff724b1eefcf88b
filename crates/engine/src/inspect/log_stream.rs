//! `logs --follow` for a selection: the output of all its attempts, also of those that start later.
//!
//! No index finds the attempts that began after a moment. They are found among the runs in progress, the newest runs, and the runs
//! of the tasks that have just finished.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::change::selected::select_tasks;
use crate::context::Context;
use crate::error::EngineResult;
use taskqueue_domain::monitoring::follow::Followed;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::choosing::selection::Selection;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::{Run, Task};
use taskqueue_process::signals::stop_signals::StopSignals;
use taskqueue_store::StoreError;

/// The output of a handler is saved every few seconds, so more frequent polls find only short attempts sooner.
const POLL_EVERY: Duration = Duration::from_millis(500);
/// The largest numbers of runs in progress, of newest runs, and of finished tasks in each status that one poll reads.
const IN_PROGRESS: i64 = 1_000;
const NEWEST: i64 = 200;
const ENDED: i64 = 500;
/// How far back finished tasks are read.
const ENDED_SECS: i64 = 10;
/// The statuses of finished tasks whose last attempt may have written something.
const ENDS: [TaskStatus; 4] = [TaskStatus::Success, TaskStatus::Failed, TaskStatus::Timeout, TaskStatus::Cancelled];

/// An update for a caller that follows.
#[derive(Clone, Copy, Debug)]
pub enum StreamUpdate<'a> {
    /// New output of a run.
    Text {
        /// The run.
        run: &'a Run,
        /// `stdout` or `stderr`.
        stream: &'a str,
        /// The captured text.
        text: &'a str,
    },
    /// The run has ended; it has no more output.
    Ended(&'a Run),
}

/// Passes on the output of all attempts of the selection that are in progress or start later. Stops at a signal, when `on_update`
/// returns a break, or when all tasks of a selection by id have finished.
///
/// # Errors
/// Returns an error if the database fails.
pub fn follow_selection(
    ctx: &mut Context,
    selection: &Selection,
    stop: &StopSignals,
    on_update: &mut dyn FnMut(StreamUpdate<'_>) -> ControlFlow<()>,
) -> EngineResult<()> {
    let mut stream = LogStream::begin(ctx, selection)?;
    loop {
        // Read before the output: after the end there is no more output.
        let are_settled = stream.are_settled(ctx)?;
        if stream.poll(ctx, on_update)?.is_break() || are_settled || stop.wait(POLL_EVERY) {
            return Ok(());
        }
    }
}

/// What is followed, and what was passed on so far.
struct LogStream<'a> {
    selection: &'a Selection,
    /// The tasks of a selection by id; `None` if it has only filters, which later tasks can match.
    fixed: Option<HashSet<TaskId>>,
    since: DateTime<Utc>,
    /// Whether a task of a run belongs to the selection.
    chosen: HashMap<TaskId, bool>,
    seen: HashMap<RunId, HashMap<String, Followed>>,
    ended: HashSet<RunId>,
    ended_tasks: HashSet<TaskId>,
}

impl<'a> LogStream<'a> {
    fn begin(ctx: &mut Context, selection: &'a Selection) -> EngineResult<Self> {
        let fixed = if selection.has_ids() { Some(select_tasks(ctx, selection)?.into_iter().collect()) } else { None };
        Ok(Self {
            selection,
            fixed,
            since: ctx.store.now()?,
            chosen: HashMap::new(),
            seen: HashMap::new(),
            ended: HashSet::new(),
            ended_tasks: HashSet::new(),
        })
    }

    fn are_settled(&self, ctx: &mut Context) -> EngineResult<bool> {
        let Some(fixed) = &self.fixed else { return Ok(false) };
        let ids: Vec<TaskId> = fixed.iter().copied().collect();
        Ok(ctx.store.get_tasks(&ids)?.iter().all(Task::is_settled))
    }

    fn poll(
        &mut self,
        ctx: &mut Context,
        on_update: &mut dyn FnMut(StreamUpdate<'_>) -> ControlFlow<()>,
    ) -> EngineResult<ControlFlow<()>> {
        let mut runs = self.begun_runs(ctx)?;
        self.choose(ctx, &runs)?;
        self.ended.retain(|id| runs.iter().any(|run| run.id == *id));
        runs.retain(|run| self.chosen.get(&run.task_id) == Some(&true) && !self.ended.contains(&run.id));
        for run in &runs {
            let streams = self.seen.entry(run.id).or_default();
            for output in ctx.store.list_run_outputs(run.id)? {
                let text = streams.entry(output.stream.clone()).or_default().take_new(&output);
                let update = StreamUpdate::Text { run, stream: &output.stream, text: &text };
                if !text.is_empty() && on_update(update).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            if run.finished_on.is_some() {
                self.seen.remove(&run.id);
                self.ended.insert(run.id);
                if on_update(StreamUpdate::Ended(run)).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the started runs that have not ended before this stream began, by id.
    fn begun_runs(&mut self, ctx: &mut Context) -> EngineResult<Vec<Run>> {
        let mut ended_tasks = HashSet::new();
        for status in ENDS {
            let ended = ctx.store.list_newest_ended(status, ENDED_SECS, ENDED)?;
            ended_tasks.extend(ended.into_iter().filter(|(on, _)| *on >= self.since).map(|(_, id)| id));
        }
        let mut runs = Vec::new();
        for task in ended_tasks.difference(&self.ended_tasks) {
            runs.extend(ctx.store.newest_begun_run(*task)?);
        }
        self.ended_tasks = ended_tasks;
        // These are read last: a run that ends meanwhile is found here or by the next poll.
        runs.extend(ctx.store.list_newest_runs(NEWEST)?);
        runs.extend(ctx.store.list_processing_runs(None, IN_PROGRESS)?);
        let mut known: HashMap<RunId, Run> = runs.into_iter().map(|run| (run.id, run)).collect();
        for id in self.seen.keys().filter(|id| !known.contains_key(id)).copied().collect::<Vec<_>>() {
            match ctx.store.get_run(id) {
                Ok(run) => known.insert(id, run),
                // It was pruned.
                Err(StoreError::NotFound(_)) => None,
                Err(error) => return Err(error.into()),
            };
        }
        let since = self.since;
        let mut runs: Vec<Run> = known.into_values().collect();
        runs.retain(|run| run.started_on.is_some() && run.finished_on.is_none_or(|on| on >= since));
        runs.sort_unstable_by_key(|run| run.id);
        Ok(runs)
    }

    /// Decides which tasks of these runs belong to the selection.
    fn choose(&mut self, ctx: &mut Context, runs: &[Run]) -> EngineResult<()> {
        let tasks: HashSet<TaskId> = runs.iter().map(|run| run.task_id).collect();
        self.chosen.retain(|id, _| tasks.contains(id));
        let new: Vec<TaskId> = tasks.into_iter().filter(|id| !self.chosen.contains_key(id)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let found: HashSet<TaskId> = match &self.fixed {
            Some(fixed) => fixed.clone(),
            None => {
                let among = Selection { ids: new.clone(), ..self.selection.clone() };
                select_tasks(ctx, &among)?.into_iter().collect()
            }
        };
        self.chosen.extend(new.into_iter().map(|id| (id, found.contains(&id))));
        Ok(())
    }
}
