//! `status`: reports the tables and why nothing moves, as text or JSON.

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::context::Context;
use crate::error::EngineResult;
use crate::inspect::diagnosis::conditions::Inquiry;
use crate::inspect::diagnosis::explain::CIRCLE_EDGES;
pub use crate::inspect::diagnosis::reasons::Reason;
use crate::inspect::diagnosis::standstill::{Standstill, standstills};
use crate::running::runner::silence::SilenceLimit;
use crate::upkeep::prune::kept_until;
use taskqueue_domain::limits::pause::Pause;
use taskqueue_domain::monitoring::spread::Spread;
use taskqueue_domain::monitoring::time_line::{Segment, time_line};
use taskqueue_domain::run::claimant::HeldBack;
use taskqueue_domain::task::choosing::selection::{PageStart, Selection};
use taskqueue_domain::task::dependencies::LinkedTask;
use taskqueue_domain::task::ids::{RunId, RunnerId, TaskId};
use taskqueue_domain::task::records::{Run, RunOutput, Runner, Task};
use taskqueue_process::identities::identity::{Liveness, ProcessIdentity};
use taskqueue_process::identities::usage::memory_bytes;
use taskqueue_store::TaskPage;
pub use taskqueue_store::{ClassCounts, Counted, Event, TaskCounts, TaskFilter};

/// The largest number of runs, events and dependencies of one task to show.
const DETAIL_LIMIT: i64 = 100;
/// The largest number of runs of a class whose times are read.
const RUNS_OF_HISTOGRAM: usize = 1_000;

/// How many classes are counted.
pub const COUNTED_CLASSES: usize = 50;

/// A task as the list shows it.
#[derive(Clone, Debug)]
pub struct TaskLine {
    /// The task.
    pub task: Task,
    /// Its newest run.
    pub last_run: Option<Run>,
    /// Why it is in its state.
    pub reason: Reason,
    /// The number of failed attempts after which it is exhausted.
    pub allowed_retries: i32,
}

/// The overview.
#[derive(Clone, Debug)]
pub struct Overview {
    /// The time of the database's clock when it was read.
    pub now: DateTime<Utc>,
    /// The counters.
    pub counts: TaskCounts,
    /// The slots of runners that have not finished, and the limit.
    pub slots: (i64, i64),
    /// The pauses in effect.
    pub pauses: Vec<Pause>,
    /// Why due or waiting work is not processed, if so.
    pub standstills: Vec<Standstill>,
    /// The tasks of the page.
    pub lines: Vec<TaskLine>,
    /// Whether there are more tasks.
    pub has_more: bool,
    /// How long the runs of the class of the filter waited and took, if that was read.
    pub times: Option<ClassTimes>,
}

/// The work of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassLine {
    /// Its work now, and its failed tasks.
    pub counts: ClassCounts,
    /// Its scheduled tasks, due or not, without an attempt so far.
    pub scheduled: Counted,
}

impl ClassLine {
    /// What the busiest class has the most of: work now, then failures, then work to come.
    const fn rank(&self) -> [i64; 3] {
        let ClassCounts { due, waiting, running, failed, .. } = &self.counts;
        [due.count + waiting.count + *running, failed.count, self.scheduled.count]
    }
}

/// How long the newest runs of a class waited and took.
#[derive(Clone, Debug, Serialize)]
pub struct ClassTimes {
    /// The class.
    pub class: String,
    /// How many runs were read.
    pub runs: usize,
    /// From the time at which a run was due to its start, without runs for which that time is not stored any more.
    pub due_to_start: Spread,
    /// From the start of a run to its end.
    pub run_time: Spread,
}

/// Everything about one task.
#[derive(Clone, Debug)]
pub struct TaskDetail {
    /// The task.
    pub task: Task,
    /// Why it is in its state.
    pub reason: Reason,
    /// Its runs, newest first, each with its captured output.
    pub runs: Vec<(Run, Vec<RunOutput>)>,
    /// Its events, newest first.
    pub events: Vec<Event>,
    /// The tasks that must succeed before it runs, by id.
    pub prerequisites: Vec<LinkedTask>,
    /// The tasks that wait or waited for it, by id.
    pub dependants: Vec<LinkedTask>,
    /// A circular dependency with this task first and last, if there is one; only SQL can create one.
    pub circle: Option<Vec<TaskId>>,
    /// The number of failed attempts after which it is exhausted.
    pub allowed_retries: i32,
    /// Claimants that rejected it and are never offered it again.
    pub rejected_by: Vec<String>,
    /// Claimants whose lease for it expired, and which may not claim it for a while.
    pub held_back: Vec<HeldBack>,
    /// Its history in segments.
    pub time_line: Vec<Segment>,
    /// When a finished task can be pruned, if there is a limit.
    pub kept_until: Option<DateTime<Utc>>,
}

/// Returns the ids of the newest task, run and event: they grow with whatever happens.
///
/// # Errors
/// Returns an error if the database fails.
pub fn newest_ids(ctx: &mut Context) -> EngineResult<[Option<i64>; 3]> {
    Ok(ctx.store.newest_ids()?)
}

/// Returns the counters and a page of tasks.
///
/// # Errors
/// Returns an error if the database fails.
pub fn overview(ctx: &mut Context, filter: &TaskFilter) -> EngineResult<Overview> {
    let now = ctx.store.now()?;
    let counts = ctx.store.count_tasks(filter.class.as_deref())?;
    let page = ctx.store.list_tasks(filter)?;
    overview_with(ctx, now, counts, page)
}

/// Returns the classes with unfinished or failed tasks, the busiest first, and whether there are classes that are not counted: at
/// most [`COUNTED_CLASSES`] are, those with waiting, running or due work before the others.
///
/// # Errors
/// Returns an error if the database fails.
pub fn count_classes(ctx: &mut Context) -> EngineResult<(Vec<ClassLine>, bool)> {
    let names = ctx.store.list_task_classes("", COUNTED_CLASSES + 1)?;
    let has_more = names.len() > COUNTED_CLASSES;
    let counts = ctx.store.count_by_class(&names, COUNTED_CLASSES)?;
    let names: Vec<String> = counts.iter().map(|counts| counts.class.clone()).collect();
    let scheduled = ctx.store.count_scheduled_of(&names)?;
    let lines = counts.into_iter().zip(scheduled).map(|(counts, scheduled)| ClassLine { counts, scheduled });
    let mut lines: Vec<ClassLine> = lines.filter(|line| line.rank().iter().any(|number| *number > 0)).collect();
    lines.sort_by_key(|line| std::cmp::Reverse(line.rank()));
    Ok((lines, has_more))
}

/// Returns how long the newest ended runs of a class waited and took.
///
/// # Errors
/// Returns an error if the database fails.
pub fn class_times(ctx: &mut Context, class: &str) -> EngineResult<ClassTimes> {
    let times = ctx.store.list_run_times(class, RUNS_OF_HISTOGRAM)?;
    Ok(ClassTimes {
        class: class.to_owned(),
        runs: times.len(),
        due_to_start: Spread::of(times.iter().filter_map(|times| times.waited).collect()),
        run_time: Spread::of(times.iter().map(|times| times.took).collect()),
    })
}

/// Returns the counters of all tasks, and the newest `limit` of these tasks.
///
/// # Errors
/// Returns an error if the database fails.
pub fn overview_of(ctx: &mut Context, ids: &[TaskId], limit: i64) -> EngineResult<Overview> {
    let now = ctx.store.now()?;
    let counts = ctx.store.count_tasks(None)?;
    let mut newest = ids.to_vec();
    newest.sort_unstable_by(|one, other| other.cmp(one));
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = newest.len() > limit;
    newest.truncate(limit);
    let tasks = ctx.store.list_named_tasks(&newest)?;
    overview_with(ctx, now, counts, TaskPage { tasks, has_more })
}

/// A page of a selection.
#[derive(Clone, Debug)]
pub struct SelectionPage {
    /// The time of the database's clock when it was read.
    pub now: DateTime<Utc>,
    /// The tasks, in the order of the page.
    pub lines: Vec<TaskLine>,
    /// Where the next page begins. `None` if this is the last page.
    pub next: Option<PageStart>,
}

/// A page ends early when its tasks have this much data and results.
const PAGE_BYTES: usize = 16 << 20;
/// How many tasks of a page are read at first: as many as a page shows. Each can have as much data as a task may have.
const READ_FIRST: usize = 50;
/// With less data so far, twice as many are read next.
const FEW_BYTES: usize = 1 << 20;

/// Returns a page of the tasks of a selection: at most `limit`, in the order of the page. It ends early after [`PAGE_BYTES`].
///
/// # Errors
/// Returns an error if the database fails.
pub fn select_page(
    ctx: &mut Context,
    selection: &Selection,
    start: PageStart,
    limit: i64,
) -> EngineResult<SelectionPage> {
    ctx.check_family_of(selection)?;
    let now = ctx.store.now()?;
    let mut places = ctx.store.select_page(selection, start, limit.saturating_add(1))?;
    let shown = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_further = places.len() > shown;
    places.truncate(shown);
    let ids: Vec<TaskId> = places.iter().map(|place| place.id).collect();
    let (mut tasks, mut read, mut bytes, mut at_once) = (Vec::with_capacity(ids.len()), 0, 0, READ_FIRST);
    while read < ids.len() && bytes < PAGE_BYTES {
        let part = &ids[read..ids.len().min(read + at_once)];
        let found = ctx.store.list_named_tasks(part)?;
        bytes += found.iter().map(text_bytes).sum::<usize>();
        tasks.extend(found);
        read += part.len();
        if bytes < FEW_BYTES {
            at_once *= 2;
        }
    }
    let has_more = has_further || read < ids.len();
    places.truncate(read);
    let next = places.last().filter(|_| has_more).map(|last| start.continued(*last));
    let lines = task_lines(ctx, now, tasks)?;
    Ok(SelectionPage { now, lines, next })
}

/// Returns how long the texts are that can be long.
fn text_bytes((task, last_run): &(Task, Option<Run>)) -> usize {
    task.data.len() + last_run.as_ref().and_then(|run| run.results.as_ref()).map_or(0, String::len)
}

/// Adds to each task why it is in its state.
fn task_lines(ctx: &mut Context, now: DateTime<Utc>, tasks: Vec<(Task, Option<Run>)>) -> EngineResult<Vec<TaskLine>> {
    let settings = ctx.store.settings()?;
    let mut inquiry = Inquiry::new(ctx, now);
    let mut lines = Vec::with_capacity(tasks.len());
    for (task, last_run) in tasks {
        let reason = inquiry.reason_of(&task, last_run.as_ref())?;
        let allowed_retries = settings.retries_of(&task);
        lines.push(TaskLine { task, last_run, reason, allowed_retries });
    }
    Ok(lines)
}

fn overview_with(ctx: &mut Context, now: DateTime<Utc>, counts: TaskCounts, page: TaskPage) -> EngineResult<Overview> {
    let in_use = ctx.store.list_live_runners()?.iter().map(|runner| i64::from(runner.slots)).sum();
    let limit = i64::from(ctx.store.settings()?.runner_limit);
    let pauses = ctx.store.list_pauses()?;
    let standstills = standstills(ctx)?;
    let lines = task_lines(ctx, now, page.tasks)?;
    let has_more = page.has_more;
    Ok(Overview { now, counts, slots: (in_use, limit), pauses, standstills, lines, has_more, times: None })
}

/// Returns whether a task has settled.
///
/// # Errors
/// Returns an error if there is no such task, or if the database fails.
pub fn is_settled(ctx: &mut Context, task_id: TaskId) -> EngineResult<bool> {
    Ok(ctx.store.get_task(task_id)?.is_settled())
}

/// Returns one task with its runs.
///
/// # Errors
/// Returns an error if there is no such task, or if the database fails.
pub fn detail(ctx: &mut Context, task_id: TaskId) -> EngineResult<TaskDetail> {
    let mut detail = detail_without_output(ctx, task_id)?;
    for (run, outputs) in &mut detail.runs {
        *outputs = ctx.store.list_run_outputs(run.id)?;
    }
    Ok(detail)
}

/// Like [`detail`], with the captured output of the last attempt alone, if it has ended: there can be many, with much output.
///
/// # Errors
/// Returns the same errors as [`detail`].
pub fn detail_with_last_output(ctx: &mut Context, task_id: TaskId) -> EngineResult<TaskDetail> {
    let mut detail = detail_without_output(ctx, task_id)?;
    if let Some((run, outputs)) = detail.runs.iter_mut().find(|(run, _)| run.started_on.is_some())
        && run.finished_on.is_some()
    {
        *outputs = ctx.store.list_run_outputs(run.id)?;
    }
    Ok(detail)
}

fn detail_without_output(ctx: &mut Context, task_id: TaskId) -> EngineResult<TaskDetail> {
    let now = ctx.store.now()?;
    let task = ctx.store.get_task(task_id)?;
    let runs = ctx.store.list_runs_of_task(task_id, DETAIL_LIMIT)?;
    let reason = Inquiry::new(ctx, now).reason_of(&task, runs.first())?;
    let events = ctx.store.list_events_of_task(task_id, DETAIL_LIMIT)?;
    let allowed_retries = ctx.store.settings()?.retries_of(&task);
    let rejected_by = ctx.store.list_rejections(task_id)?;
    let held_back = ctx.store.list_held_back(task_id)?;
    let prerequisites = ctx.store.list_prerequisites(task_id, false, DETAIL_LIMIT)?;
    let dependants = ctx.store.list_dependants(task_id, DETAIL_LIMIT)?;
    let circle = match &reason {
        Reason::WaitsForDependencies { .. } => ctx.store.find_circle_of(task_id, CIRCLE_EDGES)?,
        _ => None,
    };
    let are_all = i64::try_from(runs.len()).is_ok_and(|count| count < DETAIL_LIMIT);
    let time_line = time_line(&task, &runs, are_all, now);
    let runs = runs.into_iter().map(|run| (run, Vec::new())).collect();
    let kept_until = kept_until(ctx, &task);
    Ok(TaskDetail {
        task,
        reason,
        runs,
        events,
        prerequisites,
        dependants,
        circle,
        allowed_retries,
        rejected_by,
        held_back,
        time_line,
        kept_until,
    })
}

/// Returns the newest runs of all tasks.
///
/// # Errors
/// Returns an error if the database fails.
pub fn list_runs(ctx: &mut Context, limit: i64) -> EngineResult<Vec<Run>> {
    Ok(ctx.store.list_newest_runs(limit)?)
}

/// Returns runs in progress without a renewal, heartbeat or progress for this many seconds.
///
/// # Errors
/// Returns an error if the database fails.
pub fn list_silent_runs(ctx: &mut Context, silent_secs: i64, limit: i64) -> EngineResult<Vec<Run>> {
    Ok(ctx.store.list_silent_runs(silent_secs, limit)?)
}

/// Returns the run with this token. A claimant's token stays valid for this; a runner's is found only while the run is in
/// progress.
///
/// # Errors
/// Returns an error if the database fails.
pub fn find_run_of_token(ctx: &mut Context, token: &str) -> EngineResult<Option<Run>> {
    Ok(ctx.store.find_run_of_token(token)?)
}

/// A runner, and the state of its process as seen from this host.
#[derive(Clone, Debug, Serialize)]
pub struct RunnerLine {
    /// The runner.
    #[serde(flatten)]
    pub runner: Runner,
    /// `alive`, `silent` (its process is alive, but has not renewed its lease in time), `dead` (its row is still open),
    /// `unknown` (another host or container), `ended`.
    pub state: &'static str,
    /// Seconds since its last renewal, if that is longer than the lease and its process is not known to be dead.
    pub silent_secs: Option<i64>,
    /// Resident memory in bytes, if this host can see its process.
    pub memory_bytes: Option<u64>,
    /// Its runs in progress.
    pub works_on: Vec<WorkLine>,
    /// The pause that applies to it.
    pub pause: Option<Pause>,
}

/// A run in progress of a runner.
#[derive(Clone, Debug, Serialize)]
pub struct WorkLine {
    /// The run.
    pub run_id: RunId,
    /// Its task.
    pub task_id: TaskId,
    /// Its class.
    pub class: String,
    /// When it started.
    pub started_on: Option<DateTime<Utc>>,
    /// 0 to 100.
    pub percents_completed: i32,
}

/// Returns the newest runners, or only those that have not finished.
///
/// # Errors
/// Returns an error if the database fails.
pub fn list_runners(ctx: &mut Context, limit: i64, only_live: bool) -> EngineResult<Vec<RunnerLine>> {
    let mut runners = if only_live { ctx.store.list_live_runners()? } else { ctx.store.list_runners(limit)? };
    runners.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let ids: Vec<RunnerId> = runners.iter().map(|runner| runner.id).collect();
    let (runs, pauses) = (ctx.store.list_runs_of_runners(&ids)?, ctx.store.list_pauses()?);
    let lease_secs = ctx.store.settings()?.lease.lease_secs;
    let limit = SilenceLimit::read(&mut ctx.store, lease_secs)?;
    let mut lines: Vec<RunnerLine> = runners.into_iter().map(|runner| runner_line(runner, limit.as_ref())).collect();
    for line in &mut lines {
        let own = runs.iter().filter(|run| run.runner_id == Some(line.runner.id));
        line.works_on = own.map(work_line).collect();
        let is_live = line.runner.finished_on.is_none();
        line.pause = pauses.iter().find(|pause| is_live && pause.scope.covers_runner(&line.runner.name)).cloned();
    }
    Ok(lines)
}

fn work_line(run: &Run) -> WorkLine {
    WorkLine {
        run_id: run.id,
        task_id: run.task_id,
        class: run.class.to_string(),
        started_on: run.started_on,
        percents_completed: run.percents_completed,
    }
}

fn runner_line(runner: Runner, limit: Option<&SilenceLimit>) -> RunnerLine {
    let (works_on, pause) = (Vec::new(), None);
    if runner.finished_on.is_some() {
        return RunnerLine { runner, state: "ended", silent_secs: None, memory_bytes: None, works_on, pause };
    }
    let identity = runner.process_identity.parse::<ProcessIdentity>().ok();
    let liveness = identity.as_ref().map_or(Liveness::Unknown, ProcessIdentity::liveness);
    let limit = limit.filter(|_| liveness != Liveness::Dead);
    let silent_secs = limit.and_then(|limit| limit.silent_secs(&runner, liveness));
    let state = match liveness {
        Liveness::Alive if silent_secs.is_some() => "silent",
        Liveness::Alive => "alive",
        Liveness::Dead => "dead",
        Liveness::Unknown => "unknown",
    };
    RunnerLine { runner, state, silent_secs, memory_bytes: identity.as_ref().and_then(memory_bytes), works_on, pause }
}
