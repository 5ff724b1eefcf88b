//! Applies schedules of configuration files. Each schedule is one transaction under the lock `create-runs`, so that two hosts never
//! create it twice.

use chrono::{DateTime, Utc};
use diesel::prelude::*;

use super::keep_claims_out;
use super::recur::{join_schedule, move_to_free_time};
use super::schedule::{edit, lock_head, remove, set_status, skips_times, take_waiting_run};
use crate::backend::{self, batch};
use crate::base::connection::AnyConnection;
use crate::base::new_task::NewTaskRow;
use crate::base::rows::TaskRow;
use crate::base::schema::{task_queue, task_queue_schedules};
use crate::base::sql::{SqlMoment, db_now};
use crate::journal::audit::keep_queued;
use crate::journal::events::{NewEvent, insert_event};
use crate::reading::schedules::{find_configured, head_of};
use crate::session::origin::Origin;
use crate::{Store, StoreError, StoreResult};
use taskqueue_domain::run::retention::KeepOfClass;
use taskqueue_domain::run::status::ScheduleStatus;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::configured::{Applier, ConfiguredSchedule, ScheduleFile, Verdict, verdict};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::new_task::NewTask;
use taskqueue_domain::task::records::Task;

/// A schedule as a file states it.
#[derive(Clone, Debug)]
pub struct WantedSchedule<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its values as JSON.
    pub definition: &'a str,
    /// Its first task, with the first planned time.
    pub task: &'a NewTask,
    /// The file.
    pub file: &'a ScheduleFile,
    /// Who applies it.
    pub applier: Applier,
}

impl Store {
    /// Creates or changes a schedule as a file states it, unless another file wins. Returns what was done, and the schedule. The
    /// event is recorded for its newest task if an existing schedule was changed.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn configure_schedule(
        &mut self,
        wanted: &WantedSchedule<'_>,
        event: &NewEvent,
    ) -> StoreResult<(Verdict, Option<TaskId>)> {
        let (auditor, keep_of) = (self.auditor()?, self.keep_of.clone());
        self.write_key_once(|conn| {
            let now = enter(conn)?;
            let row = find_configured(conn, wanted.name)?;
            let live = live_schedule(conn, row.as_ref(), wanted)?;
            let what = verdict(row.as_ref(), live.is_some(), wanted.definition, wanted.file, now, wanted.applier);
            let schedule = match (what, live) {
                (Verdict::Create, _) => Some(create(conn, wanted.task, auditor.as_ref())?),
                (Verdict::Change, Some(id)) => {
                    Some(change(conn, id, wanted.task, event, keep_of.as_ref(), auditor.as_ref())?)
                }
                // The file is the one from which a person applied it.
                (Verdict::Unchanged, live) if wanted.applier != Applier::Program => live,
                (_, live) => return Ok((what, live)),
            };
            let configured_on = wanted.file.modified_on.min(now);
            write_row(
                conn,
                row.as_ref(),
                &row_of(wanted.name, schedule, Some(wanted.definition), configured_on, wanted.file),
            )?;
            fault_point!("configure.before_commit");
            Ok((what, schedule))
        })
    }

    /// Removes a schedule that is gone from its file, as an operator would. Unless `is_any_file`, only if it comes from this file.
    /// Returns whether it did.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn unconfigure_schedule(
        &mut self,
        name: &str,
        file: &ScheduleFile,
        is_any_file: bool,
        event: &NewEvent,
    ) -> StoreResult<bool> {
        let (auditor, keep_of) = (self.auditor()?, self.keep_of.clone());
        let mut freed = None;
        let is_removed = self.write_once(|conn| {
            let now = enter(conn)?;
            let row = find_configured(conn, name)?.filter(|row| is_any_file || row.is_of(file));
            let Some(row) = row.filter(|row| row.definition.is_some()) else { return Ok(false) };
            if let Some(schedule) = row.schedule_id
                && let Some(head) = lock_head(conn, schedule)?
            {
                remove(conn, &head, event, keep_of.as_ref(), auditor.as_ref())?;
                insert_event(conn, &NewEvent { task_id: Some(head.id), ..event.clone() })?;
                freed = Some(head.id);
            }
            // The row stays, so that a host with an older file does not create the schedule again.
            let configured_on = file.modified_on.min(now).max(row.configured_on);
            write_row(conn, Some(&row), &row_of(name, row.schedule_id, None, configured_on, file))?;
            Ok(true)
        })?;
        if let Some(head) = freed {
            self.pass_on_slots_of(&[head]);
        }
        Ok(is_removed)
    }
}

fn enter(conn: &mut AnyConnection) -> StoreResult<DateTime<Utc>> {
    backend::lock_gate(conn, "create-runs")?;
    backend::enter_both_tables(conn)?;
    keep_claims_out(conn)?;
    Ok(diesel::select(db_now()).get_result::<SqlMoment>(conn)?.into())
}

/// Returns the schedule of the row, if it was not removed. Without a row, returns the only schedule of this name and class: it was
/// queued by hand, or imported from another store.
fn live_schedule(
    conn: &mut AnyConnection,
    row: Option<&ConfiguredSchedule>,
    wanted: &WantedSchedule<'_>,
) -> StoreResult<Option<TaskId>> {
    use task_queue::dsl;
    if let Some(row) = row {
        let Some(id) = row.schedule_id else { return Ok(None) };
        return Ok(head_of(conn, id)?.map(|_| id));
    }
    let heads: Vec<TaskRow> = dsl::task_queue
        .filter(dsl::name.eq(wanted.name))
        .filter(dsl::task_class.eq(wanted.task.class.as_str()))
        .filter(dsl::schedule_head.is_not_null())
        .limit(2)
        .select(TaskRow::as_select())
        .load(conn)?;
    let mut heads = heads.into_iter().map(Task::from);
    let first = heads.next();
    Ok(first.filter(|_| heads.next().is_none()).and_then(|head| head.schedule).map(|schedule| schedule.id))
}

fn create(conn: &mut AnyConnection, task: &NewTask, auditor: Option<&Origin>) -> StoreResult<TaskId> {
    let ids = backend::insert_tasks(conn, &[NewTaskRow::new(task, 0, DateTime::UNIX_EPOCH)])?;
    let id = *ids.first().ok_or_else(|| StoreError::Busy("the database inserted nothing".to_owned()))?;
    join_schedule(conn, TaskId(id), TaskId(id))?;
    if let Some(origin) = auditor {
        keep_queued(conn, origin, &[id])?;
    }
    Ok(TaskId(id))
}

/// Changes a schedule, and returns its id. The class of a task never changes, so another class means another schedule.
fn change(
    conn: &mut AnyConnection,
    schedule: TaskId,
    task: &NewTask,
    event: &NewEvent,
    keep_of: Option<&KeepOfClass>,
    auditor: Option<&Origin>,
) -> StoreResult<TaskId> {
    let Some(head) = lock_head(conn, schedule)? else { return create(conn, task, auditor) };
    let (Some(seen), Some(recurrence)) = (&head.schedule, &task.recurrence) else { return create(conn, task, auditor) };
    insert_event(conn, &NewEvent { task_id: Some(head.id), ..event.clone() })?;
    if head.class.as_str() != task.class.as_str() {
        let now: SqlMoment = diesel::select(db_now()).get_result(conn)?;
        let skips_to = if skips_times(conn, &head, now.into())? { seen.planned_on } else { None };
        remove(conn, &head, event, keep_of, auditor)?;
        let id = create(conn, task, auditor)?;
        let Some(new) = head_of(conn, id)? else { return Ok(id) };
        if seen.status.is(ScheduleStatus::Paused) {
            set_status(conn, &new, ScheduleStatus::Paused)?;
        }
        if let Some(next) = skips_to.and_then(|on| recurrence.first_from(on)) {
            move_to_free_time(conn, &new, recurrence, next)?;
        }
        return Ok(id);
    }
    if seen.recurrence().as_ref() != Ok(recurrence) {
        edit(conn, &head, seen, recurrence, auditor)?;
    }
    if !has_values(&head, task) {
        set_values(conn, &head, task, auditor)?;
    }
    Ok(schedule)
}

fn has_values(head: &Task, task: &NewTask) -> bool {
    let numbers = (head.max_retries, head.timeout_secs, head.priority, head.keep_secs, head.keep_results_secs);
    numbers == (task.max_retries, task.timeout_secs, task.priority, task.keep_secs, task.keep_results_secs)
        && head.data == task.data
        && head.backoff == task.backoff.as_ref().map(ToString::to_string)
        && (&head.limit_key, &head.tag, &head.name, &head.meta) == (&task.limit_key, &task.tag, &task.name, &task.meta)
}

/// Changes everything but the times. A waiting run, which has copies of some values, is released and created again.
fn set_values(conn: &mut AnyConnection, head: &Task, task: &NewTask, auditor: Option<&Origin>) -> StoreResult<()> {
    use task_queue::dsl;
    let is_idle = take_waiting_run(conn, head, RunEvent::Release, auditor)?;
    if let Some(run) = head.current_run_id.filter(|_| !is_idle) {
        // A task in progress is ahead of no other, whatever its new priority.
        batch::mark_started(conn, &[run.0])?;
    }
    diesel::update(dsl::task_queue.filter(dsl::id.eq(head.id.0)))
        .set((
            dsl::task_data.eq(&task.data),
            dsl::max_retries.eq(task.max_retries),
            (head.max_retries != task.max_retries).then_some(dsl::retry_limit.eq(None::<i32>)),
            dsl::timeout_secs.eq(task.timeout_secs),
            dsl::priority.eq(task.priority),
            dsl::backoff.eq(task.backoff.as_ref().map(ToString::to_string)),
            dsl::limit_key.eq(task.limit_key.as_ref()),
            dsl::tag.eq(task.tag.as_ref()),
            dsl::name.eq(task.name.as_ref()),
            dsl::keep_secs.eq(task.keep_secs),
            dsl::keep_results_secs.eq(task.keep_results_secs),
            dsl::meta.eq(task.meta.as_ref()),
            dsl::updated_on.eq(db_now()),
        ))
        .execute(conn)?;
    Ok(())
}

fn row_of(
    name: &str,
    schedule_id: Option<TaskId>,
    definition: Option<&str>,
    configured_on: DateTime<Utc>,
    file: &ScheduleFile,
) -> ConfiguredSchedule {
    ConfiguredSchedule {
        name: name.to_owned(),
        schedule_id,
        definition: definition.map(str::to_owned),
        configured_on,
        host: file.host.clone(),
        file: file.path.clone(),
    }
}

/// Writes a row in place of the earlier one.
fn write_row(
    conn: &mut AnyConnection,
    before: Option<&ConfiguredSchedule>,
    row: &ConfiguredSchedule,
) -> StoreResult<()> {
    use task_queue_schedules::dsl;
    let values = (
        dsl::schedule_id.eq(row.schedule_id.map(|id| id.0)),
        dsl::definition.eq(row.definition.as_ref()),
        dsl::configured_on.eq(SqlMoment::from(row.configured_on)),
        dsl::host.eq(&row.host),
        dsl::file.eq(&row.file),
    );
    match before {
        Some(_) => {
            diesel::update(dsl::task_queue_schedules.filter(dsl::name.eq(&row.name))).set(values).execute(conn)?
        }
        None => {
            diesel::insert_into(dsl::task_queue_schedules).values((dsl::name.eq(&row.name), values)).execute(conn)?
        }
    };
    Ok(())
}
