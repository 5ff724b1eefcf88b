//! `schedule`: what happens again and again, and when; pause, resume, edit, remove.

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::{Context, EngineError, EngineResult};
use taskqueue_domain::run::status::{ScheduleStatus, Stored};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::{Task, TaskSchedule};
use taskqueue_domain::time::recurrence::Recurrence;
use taskqueue_store::{Author, ScheduleAnswer, ScheduleChange, StoreError};

/// Tasks of a schedule that are shown.
const SHOWN_TASKS: i64 = 20;
/// Planned times that are shown.
const SHOWN_TIMES: usize = 5;

/// A schedule, by its newest task.
#[derive(Clone, Debug, Serialize)]
pub struct Schedule {
    /// The id of its first task.
    pub id: TaskId,
    /// The class of its tasks.
    pub class: String,
    /// The cron expression.
    pub every: String,
    /// The zone of its wall clock.
    pub time_zone: String,
    /// How it catches up.
    pub catch_up: String,
    /// Whether it is active.
    pub status: Stored<ScheduleStatus>,
    /// Its newest task.
    pub task_id: TaskId,
    /// The status of that.
    pub task_status: String,
    /// The planned time of that, once it is known.
    pub planned_on: Option<DateTime<Utc>>,
    /// What cannot be read.
    pub problem: Option<String>,
    /// The task that has its key, and has to end before the next task of the schedule can come.
    pub key_holder: Option<TaskId>,
}

/// Everything about one schedule.
#[derive(Clone, Debug)]
pub struct ScheduleDetail {
    /// The schedule.
    pub schedule: Schedule,
    /// The next planned times, as far as they can be told.
    pub next_times: Vec<DateTime<Utc>>,
    /// Its newest tasks, newest first.
    pub tasks: Vec<Task>,
}

/// Another time for a schedule; `None` leaves what it has.
#[derive(Clone, Debug, Default)]
pub struct ScheduleEdit {
    /// The cron expression.
    pub every: Option<String>,
    /// The zone.
    pub time_zone: Option<String>,
    /// How it catches up.
    pub catch_up: Option<String>,
}

/// Every schedule, those that need somebody's attention first.
///
/// # Errors
/// The database's.
pub fn list(ctx: &mut Context) -> EngineResult<Vec<Schedule>> {
    let mut all: Vec<Schedule> = Vec::new();
    for head in ctx.store.list_schedules()? {
        all.extend(from_head(ctx, head)?);
    }
    all.sort_by_key(|schedule| (schedule.problem.is_none(), schedule.planned_on, schedule.id));
    Ok(all)
}

/// One schedule, by its id or that of any of its tasks. `None` where there is none.
///
/// # Errors
/// The database's; there is no such task.
pub fn show(ctx: &mut Context, id: TaskId) -> EngineResult<Option<ScheduleDetail>> {
    let Some(TaskSchedule { id, .. }) = schedule_of(ctx, id)? else { return Ok(None) };
    let tasks = ctx.store.list_tasks_of_schedule(id, SHOWN_TASKS)?;
    let Some(head) = tasks.first().cloned() else { return Ok(None) };
    let Some(schedule) = from_head(ctx, head)? else { return Ok(None) };
    let now = ctx.store.now()?;
    let next_times = match &tasks.first().and_then(|task| task.schedule.as_ref()).map(TaskSchedule::recurrence) {
        Some(Ok(recurrence)) if schedule.status.is(ScheduleStatus::Active) => next_times(recurrence, now),
        _ => Vec::new(),
    };
    Ok(Some(ScheduleDetail { schedule, next_times, tasks }))
}

fn next_times(recurrence: &Recurrence, now: DateTime<Utc>) -> Vec<DateTime<Utc>> {
    std::iter::successors(recurrence.next_after(now), |last| recurrence.next_after(*last)).take(SHOWN_TIMES).collect()
}

/// By its id or that of any of its tasks, also after its first task was pruned.
fn schedule_of(ctx: &mut Context, id: TaskId) -> EngineResult<Option<TaskSchedule>> {
    if let Some(newest) = ctx.store.list_tasks_of_schedule(id, 1)?.into_iter().next() {
        return Ok(newest.schedule);
    }
    Ok(ctx.store.get_task(id)?.schedule)
}

fn from_head(ctx: &mut Context, task: Task) -> EngineResult<Option<Schedule>> {
    let key_holder = key_holder(ctx, &task)?;
    let Some(facts) = task.schedule else { return Ok(None) };
    let problem = facts.recurrence().err();
    Ok(Some(Schedule {
        id: facts.id,
        class: task.class.to_string(),
        every: facts.every,
        time_zone: facts.time_zone,
        catch_up: facts.catch_up,
        status: facts.status,
        task_id: task.id,
        task_status: task.status.to_string(),
        planned_on: facts.planned_on,
        problem,
        key_holder,
    }))
}

/// Whoever keeps the next task from its key, once this one has settled.
fn key_holder(ctx: &mut Context, head: &Task) -> EngineResult<Option<TaskId>> {
    let is_active = head.schedule.as_ref().is_some_and(|schedule| schedule.status.is(ScheduleStatus::Active));
    match &head.unique_key {
        Some(key) if is_active && head.is_settled() && head.current_run_id.is_none() => {
            Ok(ctx.store.find_key_holder(head.class.as_str(), key)?.filter(|holder| *holder != head.id))
        }
        _ => Ok(None),
    }
}

/// Nothing of the schedule happens until it is resumed; what is processed goes on.
///
/// # Errors
/// [`EngineError::Refused`], the database's.
pub fn pause(ctx: &mut Context, id: TaskId) -> EngineResult<Schedule> {
    change(ctx, id, "schedule-paused", &ScheduleChange::Pause, serde_json::json!({}))
}

/// The schedule goes on; planned times that passed meanwhile count by its way to catch up.
///
/// # Errors
/// [`EngineError::Refused`], the database's.
pub fn resume(ctx: &mut Context, id: TaskId) -> EngineResult<Schedule> {
    change(ctx, id, "schedule-resumed", &ScheduleChange::Resume, serde_json::json!({}))
}

/// The schedule happens at other times, from now on.
///
/// # Errors
/// [`EngineError::Input`], [`EngineError::Refused`], the database's.
pub fn edit(ctx: &mut Context, id: TaskId, edit: &ScheduleEdit) -> EngineResult<Schedule> {
    let Some(before) = schedule_of(ctx, id)? else { return Err(no_schedule(id)) };
    let chosen = |new: &Option<String>, old: &str| new.clone().unwrap_or_else(|| old.to_owned());
    let recurrence = Recurrence::parse(
        &chosen(&edit.every, &before.every),
        &chosen(&edit.time_zone, &before.time_zone),
        &chosen(&edit.catch_up, &before.catch_up),
    )
    .map_err(EngineError::Input)?;
    let words = |every: &str, zone: &str, catch_up: &str| serde_json::json!([every, zone, catch_up]);
    let details = serde_json::json!({
        "before": words(&before.every, &before.time_zone, &before.catch_up),
        "after": words(recurrence.every(), recurrence.zone(), recurrence.catch_up().as_str()),
    });
    change(ctx, before.id, "schedule-edited", &ScheduleChange::Edit(Box::new(recurrence)), details)
}

/// Nothing follows any more: a task that waits is cancelled, one that is processed is the last.
///
/// # Errors
/// [`EngineError::Refused`], the database's.
pub fn remove(ctx: &mut Context, id: TaskId) -> EngineResult<Schedule> {
    change(ctx, id, "schedule-removed", &ScheduleChange::Remove, serde_json::json!({}))
}

/// The error for a task that belongs to no schedule.
#[must_use]
pub fn no_schedule(id: TaskId) -> EngineError {
    StoreError::NotFound(format!("schedule to which task {id} belongs")).into()
}

fn change(
    ctx: &mut Context,
    id: TaskId,
    kind: &'static str,
    change: &ScheduleChange,
    details: serde_json::Value,
) -> EngineResult<Schedule> {
    let Some(TaskSchedule { id: schedule, .. }) = schedule_of(ctx, id)? else { return Err(no_schedule(id)) };
    let event = ctx.operator_event(kind, details);
    match ctx.store.change_schedule(schedule, change, &event)? {
        ScheduleAnswer::Changed(head) => {
            fault_point!("schedule.committed");
            go_on(ctx, head.id)?;
            let newest = ctx.store.list_tasks_of_schedule(schedule, 1)?.into_iter().next();
            let Some(newest) = newest else { return Err(no_schedule(schedule)) };
            from_head(ctx, newest)?.ok_or_else(|| no_schedule(schedule))
        }
        ScheduleAnswer::Refused(status) => Err(EngineError::Refused(format!("schedule {schedule} is {status}"))),
        ScheduleAnswer::NeverHappens => Err(EngineError::Input("these times never come".to_owned())),
        ScheduleAnswer::NoSuchSchedule => Err(EngineError::Refused(format!("schedule {schedule} was removed"))),
    }
}

/// What `create-runs` would do at its next call: whoever resumes a schedule wants to see when it goes on.
fn go_on(ctx: &mut Context, head: TaskId) -> EngineResult<()> {
    let grace_secs = ctx.store.settings()?.schedule_grace_secs;
    let author = Author { name: &ctx.me.user, host: &ctx.me.host };
    ctx.store.advance_schedule(head, author, grace_secs)?;
    Ok(())
}
