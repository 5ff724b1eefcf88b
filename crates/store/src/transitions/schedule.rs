//! Operator actions on a schedule: pause, resume, edit, remove. Runs in progress continue; an unclaimed run is released or
//! cancelled.

use chrono::{DateTime, Utc};
use diesel::prelude::*;

use super::ending::end::{end_waiting_row, keep_end};
use super::ending::keep::keep_as_classes_state;
use super::ending::run_end::RunEnd;
use super::keep_claims_out;
use super::recur::{move_to_free_time, skipped_time_after};
use crate::backend;
use crate::base::connection::AnyConnection;
use crate::base::schema::task_queue::dsl;
use crate::base::schema::task_queue_runs;
use crate::base::sql::{SqlMoment, db_now};
use crate::journal::events::{NewEvent, insert_event};
use crate::reading::schedules::head_of;
use crate::rules::dependencies::satisfy_dependants;
use crate::session::origin::Origin;
use crate::{Store, StoreError, StoreResult};
use taskqueue_domain::run::attempt_outcome::AttemptOutcome;
use taskqueue_domain::run::retention::KeepOfClass;
use taskqueue_domain::run::status::{RunStatus, ScheduleStatus, Stored, TaskStatus};
use taskqueue_domain::run::transition::{RunEvent, TaskEvent, task_after};
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::{Task, TaskSchedule};
use taskqueue_domain::time::recurrence::Recurrence;

/// How often the head may be replaced before its row is locked.
const LOOKS: usize = 20;

/// An action on a schedule.
#[derive(Clone, Debug)]
pub enum ScheduleChange {
    /// Nothing happens until it is resumed.
    Pause,
    /// It skips all times before this one, and then continues.
    SkipUntil(DateTime<Utc>),
    /// It continues.
    Resume,
    /// It gets other times.
    Edit(Box<Recurrence>),
    /// No further task follows.
    Remove,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScheduleAnswer {
    /// Done; the newest task of the schedule before the change.
    Changed(Box<Task>),
    /// It has this status, which does not allow the action.
    Refused(String),
    /// The requested times never occur.
    NeverHappens,
    /// This task of it is in progress or is being retried, so that its time cannot change.
    InProgress(TaskId),
    /// The schedule does not exist, or no longer.
    NoSuchSchedule,
}

impl Store {
    /// Changes a schedule, and records the event for its newest task in the same transaction.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn change_schedule(
        &mut self,
        schedule: TaskId,
        change: &ScheduleChange,
        event: &NewEvent,
    ) -> StoreResult<ScheduleAnswer> {
        let (auditor, keep_of) = (self.auditor()?, self.keep_of.clone());
        let auditor = auditor.as_ref();
        let answer = self.write_once(|conn| {
            backend::enter_both_tables(conn)?;
            keep_claims_out(conn)?;
            let Some(head) = lock_head(conn, schedule)? else { return Ok(ScheduleAnswer::NoSuchSchedule) };
            let Some(seen) = head.schedule.clone() else { return Ok(ScheduleAnswer::NoSuchSchedule) };
            let answer = match change {
                ScheduleChange::Pause => pause(conn, &head, &seen, auditor)?,
                ScheduleChange::SkipUntil(until) => skip_until(conn, &head, &seen, *until, auditor)?,
                ScheduleChange::Resume => resume(conn, &head, &seen, auditor)?,
                ScheduleChange::Edit(recurrence) => edit(conn, &head, &seen, recurrence, auditor)?,
                ScheduleChange::Remove => remove(conn, &head, event, keep_of.as_ref(), auditor)?,
            };
            if let Some(answer) = answer {
                return Ok(answer);
            }
            insert_event(conn, &NewEvent { task_id: Some(head.id), ..event.clone() })?;
            fault_point!("schedule.before_commit");
            Ok(ScheduleAnswer::Changed(Box::new(head)))
        })?;
        if let ScheduleAnswer::Changed(head) = &answer {
            self.pass_on_slots_of(&[head.id]);
        }
        Ok(answer)
    }
}

/// Locks the head of a schedule. A transaction that ended its last run during the wait for the lock has made another task the
/// head, so this is checked again.
pub(super) fn lock_head(conn: &mut AnyConnection, schedule: TaskId) -> StoreResult<Option<Task>> {
    let mut locked = None;
    for _ in 0..LOOKS {
        let Some(head) = head_of(conn, schedule)? else { return Ok(None) };
        if locked == Some(head.id) {
            return Ok(Some(head));
        }
        backend::lock_tasks(conn, &[head.id.0])?;
        locked = Some(head.id);
    }
    Err(StoreError::Busy(format!("schedule {schedule} changed each time it was read")))
}

fn refused(seen: &TaskSchedule) -> Option<ScheduleAnswer> {
    Some(ScheduleAnswer::Refused(seen.status.to_string()))
}

fn pause(
    conn: &mut AnyConnection,
    head: &Task,
    seen: &TaskSchedule,
    auditor: Option<&Origin>,
) -> StoreResult<Option<ScheduleAnswer>> {
    if !seen.status.is(ScheduleStatus::Active) {
        return Ok(refused(seen));
    }
    set_status(conn, head, ScheduleStatus::Paused)?;
    take_waiting_run(conn, head, RunEvent::Release, auditor)?;
    Ok(None)
}

fn skip_until(
    conn: &mut AnyConnection,
    head: &Task,
    seen: &TaskSchedule,
    until: DateTime<Utc>,
    auditor: Option<&Origin>,
) -> StoreResult<Option<ScheduleAnswer>> {
    if !seen.status.is(ScheduleStatus::Active) {
        return Ok(refused(seen));
    }
    let Ok(recurrence) = seen.recurrence() else { return Ok(Some(ScheduleAnswer::NeverHappens)) };
    let Some(next) = recurrence.first_from(until) else { return Ok(Some(ScheduleAnswer::NeverHappens)) };
    if !is_untried(head) || !take_waiting_run(conn, head, RunEvent::Release, auditor)? {
        return Ok(Some(ScheduleAnswer::InProgress(head.id)));
    }
    // Tells a `create-runs` that read the head before that it has changed.
    set_status(conn, head, ScheduleStatus::Active)?;
    move_to_free_time(conn, head, &recurrence, next)?;
    Ok(None)
}

/// Moves a schedule that skips times back to its next time. Refuses if it skips none.
fn end_skip(
    conn: &mut AnyConnection,
    head: &Task,
    seen: &TaskSchedule,
    auditor: Option<&Origin>,
) -> StoreResult<Option<ScheduleAnswer>> {
    let now: SqlMoment = diesel::select(db_now()).get_result(conn)?;
    let Ok(recurrence) = seen.recurrence() else { return Ok(refused(seen)) };
    let Some(next) = recurrence.next_after(now.into()) else { return Ok(refused(seen)) };
    if !skips_times(conn, head, now.into())? || !take_waiting_run(conn, head, RunEvent::Release, auditor)? {
        return Ok(refused(seen));
    }
    set_status(conn, head, ScheduleStatus::Active)?;
    move_to_free_time(conn, head, &recurrence, next)?;
    Ok(None)
}

/// Returns true if the schedule skips times before the planned time of its untried head.
pub(crate) fn skips_times(conn: &mut AnyConnection, head: &Task, now: DateTime<Utc>) -> StoreResult<bool> {
    Ok(is_untried(head) && skipped_time_after(conn, head, now)?.is_some())
}

/// Returns true if no attempt of the task has ended, and none is in progress as far as its row tells.
fn is_untried(head: &Task) -> bool {
    head.status.is(TaskStatus::Scheduled) && head.attempts == 0
}

fn resume(
    conn: &mut AnyConnection,
    head: &Task,
    seen: &TaskSchedule,
    auditor: Option<&Origin>,
) -> StoreResult<Option<ScheduleAnswer>> {
    if seen.status.is(ScheduleStatus::Active) {
        return end_skip(conn, head, seen, auditor);
    }
    if !seen.status.is(ScheduleStatus::Paused) {
        return Ok(refused(seen));
    }
    set_status(conn, head, ScheduleStatus::Active)?;
    Ok(None)
}

pub(super) fn edit(
    conn: &mut AnyConnection,
    head: &Task,
    seen: &TaskSchedule,
    recurrence: &Recurrence,
    auditor: Option<&Origin>,
) -> StoreResult<Option<ScheduleAnswer>> {
    let now: SqlMoment = diesel::select(db_now()).get_result(conn)?;
    let skipped_until = if skips_times(conn, head, now.into())? { seen.planned_on } else { None };
    let next = skipped_until.map_or_else(|| recurrence.next_after(now.into()), |on| recurrence.first_from(on));
    let Some(next) = next else { return Ok(Some(ScheduleAnswer::NeverHappens)) };
    let status = if seen.status.is(ScheduleStatus::Paused) { ScheduleStatus::Paused } else { ScheduleStatus::Active };
    set_status(conn, head, status)?;
    diesel::update(dsl::task_queue.filter(dsl::id.eq(head.id.0)))
        .set((
            dsl::recurrence.eq(recurrence.every()),
            dsl::time_zone.eq(recurrence.zone()),
            dsl::catch_up.eq(recurrence.catch_up().as_str()),
            dsl::overlap.eq(recurrence.overlap().as_str()),
        ))
        .execute(conn)?;
    let has_same_times = (seen.every.as_str(), seen.time_zone.as_str()) == (recurrence.every(), recurrence.zone());
    if is_untried(head) && !has_same_times && take_waiting_run(conn, head, RunEvent::Release, auditor)? {
        move_to_free_time(conn, head, recurrence, next)?;
    }
    Ok(None)
}

/// Ends a schedule, and cancels its waiting task as `cancel` does. `event` tells who does it.
pub(super) fn remove(
    conn: &mut AnyConnection,
    head: &Task,
    event: &NewEvent,
    keep_of: Option<&KeepOfClass>,
    auditor: Option<&Origin>,
) -> StoreResult<Option<ScheduleAnswer>> {
    set_status(conn, head, ScheduleStatus::Ended)?;
    if head.is_settled() || !take_waiting_run(conn, head, RunEvent::Cancel, auditor)? {
        return Ok(None);
    }
    let cancelled = match head.status {
        Stored::Known(from) => task_after(from, TaskEvent::Cancel, from),
        Stored::Unknown(_) => None,
    };
    diesel::update(dsl::task_queue.filter(dsl::id.eq(head.id.0)).filter(dsl::current_run_id.is_null()))
        .set((
            cancelled.map(|status| (dsl::last_status.eq(status.as_str()), dsl::class_keep_secs.eq(None::<i32>))),
            dsl::updated_on.eq(db_now()),
        ))
        .execute(conn)?;
    if cancelled.is_some() {
        satisfy_dependants(conn, head.id.0, false)?;
        keep_as_classes_state(conn, keep_of, &[head.id.0])?;
        let details = serde_json::json!({ "reason": "its schedule was removed" });
        insert_event(conn, &NewEvent { kind: "cancelled", task_id: Some(head.id), details, ..event.clone() })?;
    }
    Ok(None)
}

pub(super) fn set_status(conn: &mut AnyConnection, head: &Task, status: ScheduleStatus) -> StoreResult<()> {
    let schedule_id = head.schedule.as_ref().map(|schedule| schedule.id.0);
    diesel::update(dsl::task_queue.filter(dsl::id.eq(head.id.0)))
        .set((dsl::schedule_status.eq(status.as_str()), dsl::schedule_id.eq(schedule_id), dsl::updated_on.eq(db_now())))
        .execute(conn)?;
    Ok(())
}

/// Ends the waiting run of a task. Returns `false` if it was claimed: the task is in progress. The run does not count as an
/// attempt; only the task's open run is cleared.
pub(super) fn take_waiting_run(
    conn: &mut AnyConnection,
    head: &Task,
    event: RunEvent,
    auditor: Option<&Origin>,
) -> StoreResult<bool> {
    use task_queue_runs::dsl as run;
    let end = RunEnd::of(event, "", "", "its schedule was changed");
    // Read first: a write by OpenTaskId could wait for a run that is just being ended, whose end waits for the head.
    let waiting = run::task_queue_runs
        .filter(run::open_task_id.eq(head.id.0))
        .filter(run::status.eq(RunStatus::Scheduled.as_str()));
    let run_id: Option<i64> = waiting.select(run::id).first(conn).optional()?;
    if let Some(run_id) = run_id.map(RunId) {
        let has_ended = end_waiting_row(conn, run_id, &end)?;
        if let Some(origin) = auditor.filter(|_| has_ended) {
            keep_end(
                conn,
                origin,
                (head.id, run_id),
                RunStatus::Scheduled,
                &end,
                AttemptOutcome::of(end.event, false),
            )?;
        }
    }
    let is_open: bool =
        diesel::select(diesel::dsl::exists(run::task_queue_runs.filter(run::open_task_id.eq(head.id.0))))
            .get_result(conn)?;
    if !is_open {
        diesel::update(dsl::task_queue.filter(dsl::id.eq(head.id.0)))
            .set(dsl::current_run_id.eq(None::<i64>))
            .execute(conn)?;
    }
    Ok(!is_open)
}
