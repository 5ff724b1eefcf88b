//! Advances schedules. A schedule is a chain of tasks, one per planned time; the newest is its head. When the head has settled,
//! the next task is inserted: by the end of its last run, or by `create-runs` if it settled in another way. Only one task of a
//! schedule can run at a time, so runs of a schedule do not overlap. overlap.rs ends a head whose successor is due.

use chrono::{DateTime, TimeDelta, Utc};
use diesel::prelude::*;
use diesel::sql_types::Bool;
use serde::Serialize;

use super::create::open_run_if_due;
use super::keep_claims_out;
use crate::backend;
use crate::base::connection::AnyConnection;
use crate::base::new_task::NewTaskRow;
use crate::base::rows::TaskRow;
use crate::base::schema::task_queue::dsl;
use crate::base::sql::{SqlMoment, db_now};
use crate::journal::audit::{keep_queued, keeps_transitions, newest_run};
use crate::journal::events::{insert_event, is_kept_of_task};
use crate::records::tasks::{plan_task, set_start_before};
use crate::rules::dependencies::OpenPrerequisites;
use crate::rules::settings::setting_now;
use crate::rules::unique::{Holder, find_holder};
use crate::session::origin::Origin;
use crate::{Store, StoreResult};
use taskqueue_domain::run::status::{ScheduleStatus, TaskStatus};
use taskqueue_domain::settings::Setting;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::{Task, TaskSchedule};
use taskqueue_domain::time::recurrence::{CatchUp, Recurrence, Step};

/// Heads that are advanced in one transaction.
const HEADS_PER_TRANSACTION: usize = 500;

/// The result of advancing schedules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Advanced {
    /// Planned times that were set or moved, and tasks that were inserted.
    pub planned: usize,
    /// Planned times that were skipped.
    pub skipped: usize,
    /// Whether more were skipped than were counted.
    pub skipped_or_more: bool,
    /// Schedules that cannot be parsed.
    pub broken: usize,
}

impl Advanced {
    fn add(&mut self, other: Self) {
        self.planned += other.planned;
        self.skipped += other.skipped;
        self.skipped_or_more |= other.skipped_or_more;
        self.broken += other.broken;
    }
}

impl Store {
    /// Advances every schedule whose head is new or has settled, or is overdue and need not run at each missed time. Costs one
    /// index lookup if there is none.
    ///
    /// # Errors
    /// The database could not be written; changes of earlier transactions remain.
    pub fn advance_schedules(&mut self) -> StoreResult<Advanced> {
        let (ids, origin) = (self.read(heads_to_advance)?, self.origin.clone());
        let (mut total, mut kept_after) = (Advanced::default(), None);
        for part in ids.chunks(HEADS_PER_TRANSACTION) {
            let advanced = self.write_key(|conn| {
                backend::lock_gate(conn, "create-runs")?;
                backend::enter_both_tables(conn)?;
                keep_claims_out(conn)?;
                let grace_secs = setting_now(conn, Setting::ScheduleGrace)?;
                let mut advanced = Advanced::default();
                let newest = newest_run(conn)?;
                kept_after.get_or_insert(newest);
                for id in part {
                    advanced.add(advance(conn, TaskId(*id), &origin, grace_secs)?);
                }
                fault_point!("recur.before_commit");
                Ok(advanced)
            })?;
            total.add(advanced);
        }
        // Tasks that follow others may be due.
        self.give_new_runs_slots(kept_after.filter(|_| total.planned > 0))?;
        Ok(total)
    }

    /// Advances one schedule, if possible.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn advance_schedule(&mut self, head: TaskId) -> StoreResult<Advanced> {
        let origin = self.origin.clone();
        let advanced = self.write_key(|conn| {
            backend::enter_both_tables(conn)?;
            keep_claims_out(conn)?;
            let grace_secs = setting_now(conn, Setting::ScheduleGrace)?;
            advance(conn, head, &origin, grace_secs)
        })?;
        if advanced.planned > 0 {
            self.pass_on_slots_of(&[head]);
        }
        Ok(advanced)
    }

    /// Returns true if there is any schedule. Costs one look at an index.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn has_schedules(&mut self) -> StoreResult<bool> {
        self.read(has_heads)
    }
}

/// Returns true if there is any schedule.
pub(super) fn has_heads(conn: &mut AnyConnection) -> StoreResult<bool> {
    let first: Option<i64> = dsl::task_queue
        .filter(dsl::schedule_head.is_not_null())
        .order((dsl::schedule_head, dsl::scheduled_on, dsl::id))
        .select(dsl::id)
        .first(conn)
        .optional()?;
    Ok(first.is_some())
}

fn heads_to_advance(conn: &mut AnyConnection) -> StoreResult<Vec<i64>> {
    if !has_heads(conn)? {
        return Ok(Vec::new());
    }
    let now: SqlMoment = diesel::select(db_now()).get_result(conn)?;
    let mut ids = Vec::new();
    for head in ["new", "settled"] {
        ids.extend(dsl::task_queue.filter(dsl::schedule_head.eq(head)).select(dsl::id).load::<i64>(conn)?);
    }
    let overdue = dsl::task_queue
        .filter(dsl::schedule_head.eq("waiting"))
        .filter(dsl::scheduled_on.le(now))
        .filter(dsl::catch_up.ne(CatchUp::All.as_str()));
    ids.extend(overdue.select(dsl::id).load::<i64>(conn)?);
    ids.sort_unstable();
    Ok(ids)
}

/// Inserts the next task of the schedule with this head, if the head has settled.
pub(super) fn follow_settled(conn: &mut AnyConnection, id: TaskId, origin: &Origin) -> StoreResult<()> {
    match find_head(conn, id)? {
        Some((task, schedule, head)) if head == "settled" => {
            let grace_secs = setting_now(conn, Setting::ScheduleGrace)?;
            follow(conn, &task, &schedule, origin, grace_secs).map(drop)
        }
        _ => Ok(()),
    }
}

/// Returns a task of a schedule with its schedule and the state of its head; `None` if it is not the newest one.
pub(super) fn find_head(conn: &mut AnyConnection, id: TaskId) -> StoreResult<Option<(Task, TaskSchedule, String)>> {
    let row: Option<(TaskRow, Option<String>)> = dsl::task_queue
        .filter(dsl::id.eq(id.0))
        .select((TaskRow::as_select(), dsl::schedule_head))
        .first(conn)
        .optional()?;
    Ok(row.and_then(|(row, head)| {
        // The next task would copy placeholders of values that cannot be read.
        let task = Some(Task::from(row)).filter(|task| task.unreadable.is_empty())?;
        let schedule = task.schedule.clone()?;
        Some((task, schedule, head?))
    }))
}

fn advance(conn: &mut AnyConnection, id: TaskId, origin: &Origin, grace_secs: i64) -> StoreResult<Advanced> {
    let Some((task, schedule, head)) = find_head(conn, id)? else { return Ok(Advanced::default()) };
    match head.as_str() {
        "new" => adopt(conn, &task, &schedule, origin),
        "settled" => follow(conn, &task, &schedule, origin, grace_secs),
        "waiting" => move_if_missed(conn, &task, &schedule, origin, grace_secs),
        _ => Ok(Advanced::default()),
    }
}

/// Completes a row that was inserted with only an expression.
fn adopt(conn: &mut AnyConnection, task: &Task, schedule: &TaskSchedule, origin: &Origin) -> StoreResult<Advanced> {
    let planned_on = match (schedule.planned_on, schedule.recurrence()) {
        (_, Err(why)) => return break_off(conn, task, schedule, origin, "new", &why),
        (Some(planned_on), Ok(_)) => planned_on,
        (None, Ok(recurrence)) => match recurrence.first_from(task.scheduled_on) {
            Some(first) => first,
            None => return break_off(conn, task, schedule, origin, "new", NEVER),
        },
    };
    if !change_head(conn, task, "new", ScheduleStatus::Active)? {
        return Ok(Advanced::default());
    }
    if schedule.planned_on.is_none() {
        move_to(conn, task, planned_on)?;
    }
    Ok(Advanced { planned: usize::from(schedule.planned_on.is_none()), ..Advanced::default() })
}

/// Why a schedule has no next task although its expression can be parsed.
const NEVER: &str = "it matches no more times";

fn follow(
    conn: &mut AnyConnection,
    task: &Task,
    schedule: &TaskSchedule,
    origin: &Origin,
    grace_secs: i64,
) -> StoreResult<Advanced> {
    let now: SqlMoment = diesel::select(db_now()).get_result(conn)?;
    let early = ran_early(task, schedule, now);
    let planned_on = schedule.planned_on.unwrap_or(task.scheduled_on);
    // The original time is next, not an earlier one that the schedule skips.
    let last = if early.is_some() { planned_on - TimeDelta::microseconds(1) } else { planned_on };
    let next = schedule.recurrence().and_then(|recurrence| {
        let step = recurrence.step_after(last, now.into(), grace_secs).ok_or_else(|| NEVER.to_owned())?;
        Ok((recurrence, step))
    });
    let (recurrence, step) = match next {
        Ok(next) => next,
        Err(why) => return break_off(conn, task, schedule, origin, "settled", &why),
    };
    if let Some(holder) = other_holder(conn, task)? {
        wait_for_key(conn, task, &holder, origin)?;
        return Ok(Advanced::default());
    }
    let prerequisites = OpenPrerequisites::lock(conn, task.id.0)?;
    if !change_head(conn, task, "settled", ScheduleStatus::Followed)? {
        return Ok(Advanced::default());
    }
    fault_point!("recur.head_followed");
    if let Some(moment) = early {
        plan_task(conn, task.id, task.scheduled_on.into(), Some(moment))?;
    }
    hand_key_over(conn, task)?;
    let planned_on = free_time(conn, task, step.planned_on, |taken| recurrence.next_after(taken))?;
    let step = Step { planned_on, ..step };
    let row = next_row(task, &recurrence, step, prerequisites.open_count());
    let auditor = keeps_transitions(conn)?.then_some(origin);
    for id in backend::insert_tasks(conn, &[row])?.into_iter().map(TaskId) {
        join_schedule(conn, id, schedule.id)?;
        prerequisites.insert_for(conn, id.0)?;
        if let Some(origin) = auditor {
            keep_queued(conn, origin, &[id.0])?;
        }
        note_skipped(conn, id, &recurrence, step, origin)?;
        // Its time may have passed already: a caller that drains the queue then processes it too.
        open_run_if_due(conn, id, auditor)?;
    }
    fault_point!("recur.next_inserted");
    Ok(Advanced { planned: 1, skipped: step.skipped, skipped_or_more: step.skipped_or_more(), broken: 0 })
}

/// Makes a task the newest one of a schedule, in the transaction that inserted it.
pub(super) fn join_schedule(conn: &mut AnyConnection, id: TaskId, schedule: TaskId) -> StoreResult<()> {
    diesel::update(dsl::task_queue.filter(dsl::id.eq(id.0))).set(dsl::schedule_id.eq(schedule.0)).execute(conn)?;
    Ok(())
}

/// Handles a task that was set to an earlier time and has ended before its planned time. Returns its new planned time, which is
/// now, so that the next task gets the original one.
fn ran_early(task: &Task, schedule: &TaskSchedule, now: SqlMoment) -> Option<SqlMoment> {
    let is_ended = task.status.is(TaskStatus::Cancelled) || task.status.is(TaskStatus::Expired);
    let has_run = task.attempts > 0 && !is_ended;
    let planned_on = schedule.planned_on.filter(|planned| has_run && task.scheduled_on < *planned)?;
    (DateTime::from(now) < planned_on).then_some(now)
}

/// Returns another holder of the head's key, which may exist if the head was settled other than by the end of its run.
fn other_holder(conn: &mut AnyConnection, task: &Task) -> StoreResult<Option<Holder>> {
    let Some(key) = &task.unique_key else { return Ok(None) };
    Ok(find_holder(conn, task.class.as_str(), key)?.filter(|holder| holder.id != task.id))
}

/// Records that another task has the key. No task follows until the holder has ended: each `create-runs` checks again. Times that
/// pass meanwhile are handled by catch-up.
fn wait_for_key(conn: &mut AnyConnection, task: &Task, holder: &Holder, origin: &Origin) -> StoreResult<()> {
    let details = serde_json::json!({ "key": holder.key, "holder": holder.id });
    let event = origin.event("key-taken", Some(task.id), None, details);
    // The holder may be the next task, which another process has just inserted: the head shows that.
    if !is_kept_of_task(conn, &event)? && change_head(conn, task, "settled", ScheduleStatus::Active)? {
        insert_event(conn, &event)?;
    }
    Ok(())
}

/// Removes the key window of the ended task, which would otherwise block its successor.
fn hand_key_over(conn: &mut AnyConnection, task: &Task) -> StoreResult<()> {
    if task.unique_until.is_some() {
        diesel::update(dsl::task_queue.filter(dsl::id.eq(task.id.0)))
            .set(dsl::unique_until.eq(None::<SqlMoment>))
            .execute(conn)?;
    }
    Ok(())
}

/// Returns the row of the next task. It takes over changes that an operator made to the settled task, and its open prerequisites
/// if it was cancelled or has expired.
fn next_row(task: &Task, recurrence: &Recurrence, step: Step, waiting_for: i32) -> NewTaskRow {
    NewTaskRow {
        task_class: task.class.to_string(),
        task_data: task.data.clone(),
        queued_by_id: task.queued_by.clone(),
        scheduled_on: Some(step.planned_on.into()),
        start_before: start_before_if_planned_on(task, step.planned_on).map(SqlMoment::from),
        max_retries: task.max_retries,
        timeout_secs: task.timeout_secs,
        priority: task.priority,
        backoff: task.backoff.clone(),
        waiting_for,
        unique_key: task.unique_key.clone(),
        unique_until: None,
        limit_key: task.limit_key.clone(),
        tag: task.tag.clone(),
        name: task.name.clone(),
        parent_id: task.parent_id.map(|id| id.0),
        keep_secs: task.keep_secs,
        keep_results_secs: task.keep_results_secs,
        meta: task.meta.clone(),
        recurrence: Some(recurrence.every().to_owned()),
        time_zone: Some(recurrence.zone().to_owned()),
        catch_up: Some(recurrence.catch_up().to_string()),
        overlap: Some(recurrence.overlap().to_string()),
        planned_on: Some(step.planned_on.into()),
    }
}

/// Returns when a task of the schedule expires that is planned on `planned_on`: as long after that as this task expires after its
/// own time.
fn start_before_if_planned_on(task: &Task, planned_on: DateTime<Utc>) -> Option<DateTime<Utc>> {
    planned_on.checked_add_signed(task.start_window()?)
}

/// Moves a waiting task of a schedule to the first of its times from `planned_on` on that no other task of the schedule has. The
/// time at which it expires moves with it, and no delay of an earlier release stays.
pub(super) fn move_to_free_time(
    conn: &mut AnyConnection,
    task: &Task,
    recurrence: &Recurrence,
    planned_on: DateTime<Utc>,
) -> StoreResult<()> {
    let planned_on = free_time(conn, task, planned_on, |taken| recurrence.next_after(taken))?;
    move_to(conn, task, planned_on)?;
    diesel::update(dsl::task_queue.filter(dsl::id.eq(task.id.0)))
        .set(dsl::next_attempt_on.eq(None::<SqlMoment>))
        .execute(conn)?;
    Ok(())
}

/// Returns the first of the times from `on` on that no other task of the schedule has: a cancelled one keeps its time, and rows that
/// SQL has inserted must not block the end of a run.
pub(super) fn free_time(
    conn: &mut AnyConnection,
    task: &Task,
    mut on: DateTime<Utc>,
    next: impl Fn(DateTime<Utc>) -> Option<DateTime<Utc>>,
) -> StoreResult<DateTime<Utc>> {
    while let Some(schedule) = &task.schedule
        && is_time_taken(conn, schedule.id, task.id, on)?
        && let Some(later) = next(on)
    {
        on = later;
    }
    Ok(on)
}

/// Returns the next time of the schedule after `after` if it lies before the planned time of its newest task: the schedule skips it.
pub(super) fn skipped_time_after(
    conn: &mut AnyConnection,
    task: &Task,
    after: DateTime<Utc>,
) -> StoreResult<Option<DateTime<Utc>>> {
    let Some(schedule) = &task.schedule else { return Ok(None) };
    let Ok(recurrence) = schedule.recurrence() else { return Ok(None) };
    let Some(next) = recurrence.next_after(after) else { return Ok(None) };
    let next = free_time(conn, task, next, |taken| recurrence.next_after(taken))?;
    Ok(Some(next).filter(|next| schedule.planned_on.is_some_and(|planned_on| *next < planned_on)))
}

fn is_time_taken(conn: &mut AnyConnection, schedule: TaskId, own: TaskId, on: DateTime<Utc>) -> StoreResult<bool> {
    let taken = dsl::task_queue
        .filter(dsl::schedule_id.eq(schedule.0))
        .filter(dsl::planned_on.eq(SqlMoment::from(on)))
        .filter(dsl::id.ne(own.0));
    Ok(diesel::select(diesel::dsl::exists(taken)).get_result(conn)?)
}

/// Moves a waiting task of a schedule to another planned time.
fn move_to(conn: &mut AnyConnection, task: &Task, planned_on: DateTime<Utc>) -> StoreResult<()> {
    plan_task(conn, task.id, planned_on.into(), Some(planned_on.into()))?;
    if task.start_before.is_some() {
        set_start_before(conn, task.id, start_before_if_planned_on(task, planned_on).map(SqlMoment::from))?;
    }
    Ok(())
}

fn move_if_missed(
    conn: &mut AnyConnection,
    task: &Task,
    schedule: &TaskSchedule,
    origin: &Origin,
    grace_secs: i64,
) -> StoreResult<Advanced> {
    let now: SqlMoment = diesel::select(db_now()).get_result(conn)?;
    let recurrence = match schedule.recurrence() {
        Ok(recurrence) => recurrence,
        Err(why) => return break_off(conn, task, schedule, origin, "waiting", &why),
    };
    let last = schedule.planned_on.unwrap_or(task.scheduled_on);
    // An operator may have postponed it to a time that the schedule does not have.
    let step = recurrence.move_overdue(last.max(task.due_from()), now.into(), grace_secs);
    let Some(step) = step else { return Ok(Advanced::default()) };
    if !change_head(conn, task, "waiting", ScheduleStatus::Active)? {
        return Ok(Advanced::default());
    }
    let planned_on = free_time(conn, task, step.planned_on, |taken| recurrence.next_after(taken))?;
    let step = Step { planned_on, ..step };
    move_to(conn, task, planned_on)?;
    note_skipped(conn, task.id, &recurrence, step, origin)?;
    Ok(Advanced { planned: 1, skipped: step.skipped, skipped_or_more: step.skipped_or_more(), broken: 0 })
}

/// Marks a schedule as broken: it does not run until it is repaired.
fn break_off(
    conn: &mut AnyConnection,
    task: &Task,
    schedule: &TaskSchedule,
    origin: &Origin,
    head: &str,
    why: &str,
) -> StoreResult<Advanced> {
    if !change_head(conn, task, head, ScheduleStatus::Broken)? {
        return Ok(Advanced::default());
    }
    let details = serde_json::json!({ "why": why, "every": schedule.every, "time_zone": schedule.time_zone });
    insert_event(conn, &origin.event("schedule-broken", Some(task.id), None, details))?;
    Ok(Advanced { broken: 1, ..Advanced::default() })
}

/// Changes the status of a head, and sets its ScheduleId. Returns false if another process has changed the head since it was
/// read: UpdatedOn then differs.
fn change_head(conn: &mut AnyConnection, seen: &Task, head: &str, status: ScheduleStatus) -> StoreResult<bool> {
    let schedule_id = seen.schedule.as_ref().map(|schedule| schedule.id.0);
    // On SQLite no other process can have changed it since; and there, a time that SQL has written with fewer digits is another text.
    let is_alone = backend::excludes_all(conn).into_sql::<Bool>();
    let unchanged = dsl::task_queue
        .filter(dsl::id.eq(seen.id.0))
        .filter(dsl::schedule_head.eq(head))
        .filter(dsl::updated_on.eq(SqlMoment::from(seen.updated_on)).or(is_alone));
    let changed = diesel::update(unchanged)
        .set((dsl::schedule_status.eq(status.as_str()), dsl::schedule_id.eq(schedule_id), dsl::updated_on.eq(db_now())))
        .execute(conn)?;
    Ok(changed == 1)
}

fn note_skipped(
    conn: &mut AnyConnection,
    id: TaskId,
    recurrence: &Recurrence,
    step: Step,
    origin: &Origin,
) -> StoreResult<()> {
    if step.skipped == 0 {
        return Ok(());
    }
    let details = serde_json::json!({
        "skipped": step.skipped, "or_more": step.skipped_or_more(), "catch_up": recurrence.catch_up().as_str(), "planned_on": step.planned_on,
    });
    insert_event(conn, &origin.event("skipped", Some(id), None, details))
}
