//! `schedule`: lists, pauses, resumes, edits and removes schedules.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use taskqueue_domain::run::status::{ScheduleStatus, Stored, TaskStatus};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::{Task, TaskSchedule};
use taskqueue_domain::text::nearest::nearest_names;
use taskqueue_domain::time::recurrence::Recurrence;
use taskqueue_store::{ScheduleAnswer, ScheduleChange, StoreError};

/// How many tasks of a schedule are shown.
const SHOWN_TASKS: i64 = 20;
/// How many planned times are shown.
const SHOWN_TIMES: usize = 5;

/// A schedule, described by its newest task.
#[derive(Clone, Debug, Serialize)]
pub struct Schedule {
    /// The id of its first task.
    pub id: TaskId,
    /// The name of its newest task.
    pub name: Option<String>,
    /// The class of its tasks.
    pub class: String,
    /// The cron expression.
    pub every: String,
    /// The time zone of its cron expression.
    pub time_zone: String,
    /// How it handles missed times.
    pub catch_up: String,
    /// Whether its tasks replace each other.
    pub overlap: String,
    /// Its status.
    pub status: Stored<ScheduleStatus>,
    /// Its newest task.
    pub task_id: TaskId,
    /// The status of that task.
    pub task_status: String,
    /// The planned time of that task, if it is known.
    pub planned_on: Option<DateTime<Utc>>,
    /// What cannot be parsed.
    pub problem: Option<String>,
    /// The task that holds its unique key: it must finish before the next task of the schedule can be created.
    pub key_holder: Option<TaskId>,
    /// The host and the path of the configuration file from which it comes, with a colon between them.
    pub file: Option<String>,
    /// The data of that task.
    #[serde(skip)]
    pub data: String,
}

/// A schedule in detail.
#[derive(Clone, Debug)]
pub struct ScheduleDetail {
    /// The schedule.
    pub schedule: Schedule,
    /// The next planned times, as far as they are known.
    pub next_times: Vec<DateTime<Utc>>,
    /// Its newest tasks, newest first.
    pub tasks: Vec<Task>,
}

/// Changes to a schedule; `None` keeps a value.
#[derive(Clone, Debug, Default)]
pub struct ScheduleEdit {
    /// The cron expression.
    pub every: Option<String>,
    /// The time zone.
    pub time_zone: Option<String>,
    /// How it handles missed times.
    pub catch_up: Option<String>,
    /// Whether its tasks replace each other.
    pub overlap: Option<String>,
}

/// Returns all schedules, those with problems first.
///
/// # Errors
/// Returns an error if the database fails.
pub fn list(ctx: &mut Context) -> EngineResult<Vec<Schedule>> {
    let mut all: Vec<Schedule> = Vec::new();
    let files = files(ctx)?;
    for head in ctx.store.list_schedules()? {
        all.extend(from_head(ctx, head, &files)?);
    }
    all.sort_by_key(|schedule| (schedule.problem.is_none(), schedule.planned_on, schedule.id));
    Ok(all)
}

/// Returns the last task of each of these schedules that has started or ended, if it was not deleted.
///
/// # Errors
/// Returns an error if the database fails.
pub fn last_tasks(ctx: &mut Context, schedules: &[Schedule]) -> EngineResult<Vec<Task>> {
    let before = ctx.store.list_tasks_before_heads()?;
    let waits = |schedule: &Schedule| schedule.task_status == TaskStatus::Scheduled.as_str();
    let last = |schedule: &Schedule| {
        if waits(schedule) { before.get(&schedule.task_id).copied() } else { Some(schedule.task_id) }
    };
    Ok(ctx.store.get_tasks(&schedules.iter().filter_map(last).collect::<Vec<_>>())?)
}

/// Returns a schedule, by its id or by the id of any of its tasks. `None` if there is none.
///
/// # Errors
/// Returns an error if there is no such task, or if the database fails.
pub fn show(ctx: &mut Context, id: TaskId) -> EngineResult<Option<ScheduleDetail>> {
    let Some(TaskSchedule { id, .. }) = schedule_of(ctx, id)? else { return Ok(None) };
    let tasks = ctx.store.list_tasks_of_schedule(id, SHOWN_TASKS)?;
    let Some(head) = tasks.first().cloned() else { return Ok(None) };
    let files = files(ctx)?;
    let Some(schedule) = from_head(ctx, head, &files)? else { return Ok(None) };
    let now = ctx.store.now()?;
    let next_times = match &tasks.first().and_then(|task| task.schedule.as_ref()).map(TaskSchedule::recurrence) {
        Some(Ok(recurrence)) if schedule.status.is(ScheduleStatus::Active) => {
            next_times(recurrence, schedule.planned_on, now)
        }
        _ => Vec::new(),
    };
    Ok(Some(ScheduleDetail { schedule, next_times, tasks }))
}

/// Returns the next times; those before the planned time of the newest task are skipped.
fn next_times(recurrence: &Recurrence, planned_on: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Vec<DateTime<Utc>> {
    let first = planned_on.filter(|on| *on > now).or_else(|| recurrence.next_after(now));
    std::iter::successors(first, |last| recurrence.next_after(*last)).take(SHOWN_TIMES).collect()
}

/// Finds a schedule by its id or by the id of any of its tasks, even if its first task was pruned.
pub(crate) fn schedule_of(ctx: &mut Context, id: TaskId) -> EngineResult<Option<TaskSchedule>> {
    if let Some(newest) = ctx.store.list_tasks_of_schedule(id, 1)?.into_iter().next() {
        return Ok(newest.schedule);
    }
    Ok(ctx.store.get_task(id)?.schedule)
}

/// Returns the file of each configured schedule, by the id of the schedule.
fn files(ctx: &mut Context) -> EngineResult<HashMap<TaskId, String>> {
    let rows = ctx.store.list_configured_schedules()?.into_iter().filter(|row| row.definition.is_some());
    Ok(rows.filter_map(|row| Some((row.schedule_id?, format!("{}:{}", row.host, row.file)))).collect())
}

fn from_head(ctx: &mut Context, task: Task, files: &HashMap<TaskId, String>) -> EngineResult<Option<Schedule>> {
    let key_holder = key_holder(ctx, &task)?;
    let Some(facts) = task.schedule.clone() else { return Ok(None) };
    let problem = facts.recurrence().err();
    Ok(Some(Schedule {
        id: facts.id,
        name: task.name.clone(),
        class: task.class.to_string(),
        every: facts.every,
        time_zone: facts.time_zone,
        catch_up: facts.catch_up,
        overlap: facts.overlap,
        status: facts.status,
        task_id: task.id,
        task_status: task.status.to_string(),
        planned_on: facts.planned_on,
        problem,
        key_holder,
        file: files.get(&facts.id).cloned(),
        data: task.data,
    }))
}

/// Returns the task that holds the unique key, so that the next task cannot be created when this one has finished.
fn key_holder(ctx: &mut Context, head: &Task) -> EngineResult<Option<TaskId>> {
    let is_active = head.schedule.as_ref().is_some_and(|schedule| schedule.status.is(ScheduleStatus::Active));
    match &head.unique_key {
        Some(key) if is_active && head.is_settled() && head.current_run_id.is_none() => {
            Ok(ctx.store.find_key_holder(head.class.as_str(), key)?.filter(|holder| *holder != head.id))
        }
        _ => Ok(None),
    }
}

/// Pauses a schedule until it is resumed; a run in progress continues.
///
/// # Errors
/// Returns [`EngineError::Refused`], or an error if the database fails.
pub fn pause(ctx: &mut Context, id: TaskId) -> EngineResult<Schedule> {
    change(ctx, id, "schedule-paused", &ScheduleChange::Pause, serde_json::json!({}))
}

/// Skips the times of a schedule before this one. Afterwards it continues.
///
/// # Errors
/// Returns [`EngineError::Refused`] or [`EngineError::Input`], or an error if the database fails.
pub fn skip_until(ctx: &mut Context, id: TaskId, until: DateTime<Utc>) -> EngineResult<Schedule> {
    let details = serde_json::json!({ "until": until });
    change(ctx, id, "schedule-paused", &ScheduleChange::SkipUntil(until), details)
}

/// Resumes a schedule; its catch-up rule decides about the times that passed meanwhile. One that skips times continues with its
/// next time.
///
/// # Errors
/// Returns [`EngineError::Refused`], or an error if the database fails.
pub fn resume(ctx: &mut Context, id: TaskId) -> EngineResult<Schedule> {
    change(ctx, id, "schedule-resumed", &ScheduleChange::Resume, serde_json::json!({}))
}

/// Changes the times of a schedule.
///
/// # Errors
/// Returns [`EngineError::Input`] or [`EngineError::Refused`], or an error if the database fails.
pub fn edit(ctx: &mut Context, id: TaskId, edit: &ScheduleEdit) -> EngineResult<Schedule> {
    let Some(before) = schedule_of(ctx, id)? else { return Err(no_schedule(id)) };
    let chosen = |new: &Option<String>, old: &str| new.clone().unwrap_or_else(|| old.to_owned());
    let recurrence = Recurrence::from_phrase(
        &chosen(&edit.every, &before.every),
        &chosen(&edit.time_zone, &before.time_zone),
        &chosen(&edit.catch_up, &before.catch_up),
    )
    .and_then(|recurrence| recurrence.with_overlap(&chosen(&edit.overlap, &before.overlap)))
    .map_err(EngineError::Input)?;
    let details = serde_json::json!({
        "before": [&before.every, &before.time_zone, &before.catch_up, &before.overlap],
        "after": [
            recurrence.every(), recurrence.zone(), recurrence.catch_up().as_str(), recurrence.overlap().as_str(),
        ],
    });
    change(ctx, before.id, "schedule-edited", &ScheduleChange::Edit(Box::new(recurrence)), details)
}

/// Removes a schedule: a waiting task is cancelled, and a task in progress is the last one.
///
/// # Errors
/// Returns [`EngineError::Refused`], or an error if the database fails.
pub fn remove(ctx: &mut Context, id: TaskId) -> EngineResult<Schedule> {
    change(ctx, id, "schedule-removed", &ScheduleChange::Remove, serde_json::json!({}))
}

/// Returns the only schedule of this name.
///
/// # Errors
/// Returns [`StoreError::NotFound`] if no schedule has the name, [`EngineError::Input`] if several have it, or an error if the
/// database fails.
pub fn named(ctx: &mut Context, name: &str) -> EngineResult<TaskId> {
    let ids = |heads: Vec<Task>| heads.into_iter().filter_map(|head| head.schedule).map(|schedule| schedule.id);
    let found: Vec<TaskId> = ids(ctx.store.list_schedules_named(name)?).collect();
    match found.as_slice() {
        [only] => Ok(*only),
        [] => {
            let names: Vec<String> = ctx.store.list_schedules()?.into_iter().filter_map(|head| head.name).collect();
            let nearest = nearest_names(name, names).into_iter().next();
            let meant = nearest.map(|name| format!("; did you mean \"{name}\"?")).unwrap_or_default();
            Err(StoreError::NotFound(format!("schedule with the name \"{name}\"{meant}")).into())
        }
        several => {
            let ids: Vec<String> = several.iter().map(TaskId::to_string).collect();
            Err(EngineError::Input(format!("the schedules {} have the name \"{name}\"; give an id", ids.join(", "))))
        }
    }
}

/// Returns the error for a task that belongs to no schedule.
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
            // Does what the next `create-runs` would do, so that the answer contains the next time.
            ctx.store.advance_schedule(head.id)?;
            let newest = ctx.store.list_tasks_of_schedule(schedule, 1)?.into_iter().next();
            let Some(newest) = newest else { return Err(no_schedule(schedule)) };
            let files = files(ctx)?;
            from_head(ctx, newest, &files)?.ok_or_else(|| no_schedule(schedule))
        }
        ScheduleAnswer::Refused(status) => Err(EngineError::Refused(format!("schedule {schedule} is {status}"))),
        ScheduleAnswer::NeverHappens => Err(EngineError::Input("the schedule matches no time".to_owned())),
        ScheduleAnswer::InProgress(task) => Err(EngineError::Refused(format!(
            "task {task} of schedule {schedule} is in progress or is being retried; try again when it has ended"
        ))),
        ScheduleAnswer::NoSuchSchedule => Err(EngineError::Refused(format!("schedule {schedule} was removed"))),
    }
}
