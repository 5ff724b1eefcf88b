//! Restarts finished tasks. A task that failed keeps the status of its last attempt; any other returns to the state in which it
//! was queued.

use diesel::prelude::*;

use super::{enter_tasks, hold_idle};
use crate::base::connection::AnyConnection;
use crate::base::rows::TaskRow;
use crate::base::schema::task_queue::dsl;
use crate::base::sql::{SqlMoment, db_now, db_now_plus};
use crate::journal::events::{NewEvent, insert_event};
use crate::rules::unique::{Holder, find_other_holder};
use crate::{Store, StoreResult};
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::run::transition::{TaskEvent, statuses_for, task_after};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Task;
use taskqueue_domain::task::task_change::TaskChange;

/// What a restart writes for each task, beside its row.
#[derive(Clone, Debug)]
pub struct NewStart {
    /// The event.
    pub event: NewEvent,
    /// The JSON text that replaces the data of the task, and the event of that change.
    pub data: Option<(String, NewEvent)>,
}

/// The answer to a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestartAnswer {
    /// It is due now, or at the given time.
    Done,
    /// It has another status, or an open run.
    Refused {
        /// LastStatus
        status: String,
        /// Whether it has a run that is waiting or in progress.
        has_open_run: bool,
    },
    /// Another live task, queued later, has its key and takes precedence.
    KeyTaken(Holder),
    /// The task does not exist.
    NoSuchTask,
}

impl Store {
    /// Makes finished tasks due after these seconds, with failures and crashes reset; `only` tasks in these statuses, or in any
    /// if it is empty. Returns one answer per task, in one transaction.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn restart_tasks(
        &mut self,
        tasks: &[(TaskId, i64)],
        only: &[TaskStatus],
        start: &NewStart,
    ) -> StoreResult<Vec<RestartAnswer>> {
        let ids: Vec<TaskId> = tasks.iter().map(|(id, _)| *id).collect();
        let mut from = statuses_for(TaskEvent::Retry);
        from.retain(|status| only.is_empty() || only.contains(status));
        self.write_key_once(|conn| {
            enter_tasks(conn, &ids)?;
            let restart = |(id, due_in_secs): &(TaskId, i64)| restart_task(conn, *id, &from, *due_in_secs, start);
            let answers = tasks.iter().map(restart).collect::<StoreResult<_>>()?;
            fault_point!("retry.before_commit");
            Ok(answers)
        })
    }
}

fn restart_task(
    conn: &mut AnyConnection,
    task_id: TaskId,
    from: &[TaskStatus],
    due_in_secs: i64,
    start: &NewStart,
) -> StoreResult<RestartAnswer> {
    let names: Vec<&str> = from.iter().map(|status| status.as_str()).collect();
    if let Some(holder) = find_other_holder(conn, task_id, &names)? {
        return Ok(RestartAnswer::KeyTaken(holder));
    }
    fault_point!("retry.key_free");
    let is_idle = hold_idle(conn, task_id)?;
    let this_task = || dsl::task_queue.filter(dsl::id.eq(task_id.0));
    let task = this_task().select(TaskRow::as_select()).first(conn).optional()?.map(Task::from);
    let Some(task) = task else { return Ok(RestartAnswer::NoSuchTask) };
    let has_open_run = !is_idle || task.current_run_id.is_some();
    let status = task.status.known().copied().filter(|status| !has_open_run && from.contains(status));
    let Some(after) = status.and_then(|status| task_after(status, TaskEvent::Retry, status)) else {
        return Ok(RestartAnswer::Refused { status: task.status.to_string(), has_open_run });
    };
    let is_anew = after == TaskStatus::Scheduled;
    let due_on = || db_now_plus(due_in_secs);
    diesel::update(this_task())
        .set((
            dsl::last_status.eq(after.as_str()),
            is_anew.then(|| (dsl::scheduled_on.eq(due_on()), dsl::next_attempt_on.eq(None::<SqlMoment>))),
            (!is_anew).then(|| dsl::next_attempt_on.eq(due_on().nullable())),
            dsl::failed_retries.eq(0),
            dsl::retry_limit.eq(None::<i32>),
            dsl::crashes.eq(0),
            dsl::quarantined_on.eq(None::<SqlMoment>),
            dsl::updated_on.eq(db_now()),
        ))
        .execute(conn)?;
    complete_restart(conn, task_id, due_in_secs, start)?;
    Ok(RestartAnswer::Done)
}

/// Writes what belongs to the restart of a task that is due after these seconds. Removes the time before which it had to start,
/// if that will have passed: it would expire again.
pub(super) fn complete_restart(
    conn: &mut AnyConnection,
    task_id: TaskId,
    due_in_secs: i64,
    start: &NewStart,
) -> StoreResult<()> {
    let passed = dsl::start_before.le(db_now_plus(due_in_secs).nullable());
    diesel::update(dsl::task_queue.filter(dsl::id.eq(task_id.0)).filter(passed))
        .set(dsl::start_before.eq(None::<SqlMoment>))
        .execute(conn)?;
    if let Some((data, edited)) = &start.data {
        replace_data(conn, task_id, data, edited)?;
    }
    insert_event(conn, &NewEvent { task_id: Some(task_id), ..start.event.clone() })
}

fn replace_data(conn: &mut AnyConnection, task_id: TaskId, data: &str, event: &NewEvent) -> StoreResult<()> {
    let this_task = || dsl::task_queue.filter(dsl::id.eq(task_id.0));
    let task: Task = this_task().select(TaskRow::as_select()).first(conn).map(Task::from)?;
    diesel::update(this_task()).set(dsl::task_data.eq(data)).execute(conn)?;
    let change = TaskChange { data: Some(data.to_owned()), ..TaskChange::default() };
    insert_event(conn, &NewEvent { task_id: Some(task_id), ..event.edited(&change, &task) })
}
