//! Changes data, times and numbers of existing tasks. UpdatedOn is their version.

use chrono::{DateTime, TimeDelta, Utc};
use diesel::prelude::*;
use diesel::result::Error as DieselError;

use super::ending::end::end_waiting_run;
use super::ending::keep::keep_results_of;
use super::ending::run_end::RunEnd;
use super::meta::extend_meta;
use super::recur::{free_time, skipped_time_after};
use super::{enter_tasks, keep_claims_out};
use crate::backend::batch;
use crate::base::connection::AnyConnection;
use crate::base::rows::TaskRow;
use crate::base::schema::{task_queue, task_queue_runs};
use crate::base::sql::{SqlMoment, any_year, db_now};
use crate::journal::events::{NewEvent, insert_event};
use crate::records::tasks::set_start_before;
use crate::rules::dependencies::satisfy_dependants;
use crate::rules::unique::{Holder, find_other_holder};
use crate::session::origin::Origin;
use crate::{Store, StoreError, StoreResult};
use taskqueue_domain::run::status::{RunStatus, Stored, TaskStatus};
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::Task;
use taskqueue_domain::task::task_change::{TaskChange, TaskVersion};

/// Failed tasks that have retries left are live.
const FAILED: [&str; 2] = [TaskStatus::Failed.as_str(), TaskStatus::Timeout.as_str()];

/// The answer to an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditAnswer {
    /// It was changed; the task before the change.
    Edited(Box<Task>),
    /// It was changed by another process; the current task.
    Stale(Box<Task>),
    /// This version does not know its status; the current task.
    Unknown(Box<Task>),
    /// With more retries it would become live again, and another live task has its key.
    KeyTaken(Holder),
    /// With the new metadata, its metadata would be too large; or the stored metadata cannot be read.
    MetaRefused,
    /// Its schedule skips times before its planned time, and would run on this one if the task were moved up.
    SkipsTime(DateTime<Utc>),
    /// The task does not exist.
    NoSuchTask,
}

impl Store {
    /// Changes these tasks, in one transaction, with one answer for each. With `if_version`, changes only tasks that
    /// still have it. Records the event of each, with the previous values.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn edit_tasks(
        &mut self,
        ids: &[TaskId],
        change: &TaskChange,
        if_version: Option<TaskVersion>,
        event: &NewEvent,
    ) -> StoreResult<Vec<EditAnswer>> {
        let auditor = self.auditor()?;
        let answers = self.write_key_once(|conn| {
            let answers = edit_together(conn, ids, change, if_version, event, auditor.as_ref())?;
            fault_point!("edit.before_commit");
            Ok(answers)
        })?;
        self.pass_on_slots_of(ids);
        Ok(answers)
    }

    /// Returns the answers that [`Store::edit_tasks`] would return now: executes it and rolls it back.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn preview_edits(
        &mut self,
        ids: &[TaskId],
        change: &TaskChange,
        if_version: Option<TaskVersion>,
        event: &NewEvent,
    ) -> StoreResult<Vec<EditAnswer>> {
        let mut answers = Vec::new();
        let written: StoreResult<()> = self.write_key(|conn| {
            answers = edit_together(conn, ids, change, if_version, event, None)?;
            Err(DieselError::RollbackTransaction.into())
        });
        match written {
            Ok(()) | Err(StoreError::Database(DieselError::RollbackTransaction)) => Ok(answers),
            Err(error) => Err(error),
        }
    }
}

fn edit_together(
    conn: &mut AnyConnection,
    ids: &[TaskId],
    change: &TaskChange,
    if_version: Option<TaskVersion>,
    event: &NewEvent,
    auditor: Option<&Origin>,
) -> StoreResult<Vec<EditAnswer>> {
    enter_tasks(conn, ids)?;
    keep_claims_out(conn)?;
    ids.iter().map(|id| edit_task(conn, *id, change, if_version, event, auditor)).collect()
}

fn edit_task(
    conn: &mut AnyConnection,
    id: TaskId,
    change: &TaskChange,
    if_version: Option<TaskVersion>,
    event: &NewEvent,
    auditor: Option<&Origin>,
) -> StoreResult<EditAnswer> {
    use task_queue::dsl;
    // From here on, no other transaction can change it.
    let this_task = || dsl::task_queue.filter(dsl::id.eq(id.0));
    diesel::update(this_task()).set(dsl::updated_on.eq(dsl::updated_on)).execute(conn)?;
    let found: Option<Task> = this_task().select(TaskRow::as_select()).first(conn).optional()?.map(Task::from);
    let Some(task) = found.map(Box::new) else { return Ok(EditAnswer::NoSuchTask) };
    if if_version.is_some_and(|version| !version.is_of(&task)) {
        return Ok(EditAnswer::Stale(task));
    }
    if matches!(task.status, Stored::Unknown(_)) {
        return Ok(EditAnswer::Unknown(task));
    }
    if change.max_retries.is_some_and(|max| max > task.failed_retries)
        && let Some(holder) = find_other_holder(conn, id, &FAILED)?
    {
        return Ok(EditAnswer::KeyTaken(holder));
    }
    let now: DateTime<Utc> = diesel::select(db_now()).get_result::<SqlMoment>(conn)?.into();
    let moved_up = change.scheduled_on.and_then(|on| task.planned_on_if_moved_up(on, now));
    if let Some(on) = moved_up
        && let Some(skipped) = skipped_time_after(conn, &task, on)?
    {
        return Ok(EditAnswer::SkipsTime(skipped));
    }
    if !change.meta.is_empty() && !extend_meta(conn, id, &change.meta)? {
        return Ok(EditAnswer::MetaRefused);
    }
    if let Some(run) = task.current_run_id.filter(|_| change.priority.is_some()) {
        // A task in progress is ahead of no other, whatever its new priority.
        batch::mark_started(conn, &[run.0])?;
    }
    edit_waiting_run(conn, &task, change, now, auditor)?;
    // Another task of the schedule may have just this time.
    let next_free = |on| free_time(conn, &task, on, |taken| Some(taken + TimeDelta::microseconds(1)));
    let planned_on = moved_up.map(next_free).transpose()?;
    // Later than any earlier version: some clocks have only milliseconds.
    let start_on = change.scheduled_on.unwrap_or(task.due_from()).max(now);
    let version = now.max(task.updated_on + TimeDelta::microseconds(1));
    diesel::update(this_task())
        .set((
            change.data.as_ref().map(|data| dsl::task_data.eq(data)),
            change.scheduled_on.map(|on| dsl::scheduled_on.eq(any_year(on.into()))),
            change.scheduled_on.map(|_| dsl::next_attempt_on.eq(None::<SqlMoment>)),
            change.max_retries.map(|max| (dsl::max_retries.eq(max), dsl::retry_limit.eq(None::<i32>))),
            change.timeout_secs.map(|secs| dsl::timeout_secs.eq(secs)),
            change.priority.map(|priority| dsl::priority.eq(priority)),
            change.backoff.as_ref().map(|backoff| dsl::backoff.eq(backoff.as_ref().map(ToString::to_string))),
            planned_on.map(|on| dsl::planned_on.eq(any_year(on.into()).nullable())),
            change.keep_secs.map(|secs| dsl::keep_secs.eq(secs)),
            change.keep_results_secs.map(|secs| dsl::keep_results_secs.eq(secs)),
            dsl::updated_on.eq(SqlMoment::from(version)),
        ))
        .execute(conn)?;
    if let Some(expiry) = change.expires {
        set_start_before(conn, id, expiry.map(|expiry| expiry.start_before(start_on).into()))?;
    } else if let (Some(on), Some(window)) = (planned_on, task.start_window()) {
        // The tasks that follow expire as long after their times as this one.
        set_start_before(conn, id, on.checked_add_signed(window).map(SqlMoment::from))?;
    } else if let (Some(on), Some(before)) = (change.scheduled_on, task.start_before)
        && on >= before
    {
        // It could never start: it expires as long after its new time as after the old one.
        let moved = before.checked_add_signed(on - task.scheduled_on);
        set_start_before(conn, id, moved.map(SqlMoment::from))?;
    }
    if let Some(secs) = change.keep_results_secs {
        keep_results_of(conn, id, secs)?;
    }
    let has_failed = task.status.is(TaskStatus::Failed) || task.status.is(TaskStatus::Timeout);
    let is_over = has_failed && change.max_retries.is_some_and(|max| max <= task.failed_retries);
    // Otherwise the end of its open run decides.
    if is_over && !has_open_run(conn, id)? {
        satisfy_dependants(conn, id.0, false)?;
    }
    insert_event(conn, &NewEvent { task_id: Some(id), ..event.edited(change, &task) })?;
    Ok(EditAnswer::Edited(task))
}

fn has_open_run(conn: &mut AnyConnection, id: TaskId) -> QueryResult<bool> {
    let open = task_queue_runs::table.filter(task_queue_runs::open_task_id.eq(id.0)).select(task_queue_runs::id);
    Ok(open.first::<i64>(conn).optional()?.is_some())
}

/// Updates or releases the waiting run of an edited task: it has its task's priority, and exists because the task was due.
fn edit_waiting_run(
    conn: &mut AnyConnection,
    task: &Task,
    change: &TaskChange,
    now: DateTime<Utc>,
    auditor: Option<&Origin>,
) -> StoreResult<()> {
    use task_queue_runs::dsl;
    let waiting = dsl::task_queue_runs
        .filter(dsl::open_task_id.eq(task.id.0))
        .filter(dsl::status.eq(RunStatus::Scheduled.as_str()));
    let run_id: Option<i64> = waiting.select(dsl::id).first(conn).optional()?;
    let Some(run_id) = run_id else { return Ok(()) };
    if change.scheduled_on.is_some_and(|on| on > now) {
        let end = RunEnd::of(RunEvent::Release, "rescheduled", "its task got another time", "rescheduled: released");
        end_waiting_run(conn, RunId(run_id), &end, auditor)?;
    } else if let Some(priority) = change.priority {
        diesel::update(dsl::task_queue_runs.filter(dsl::id.eq(run_id)))
            .set((dsl::priority.eq(priority), dsl::updated_on.eq(db_now())))
            .execute(conn)?;
    }
    Ok(())
}
