//! Restarts tasks. A retried task keeps the status of its last attempt. A requeued task, whatever its outcome, returns to the
//! state in which it was queued.

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
use taskqueue_domain::run::transition::{TaskEvent, task_after};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Task;
use taskqueue_domain::task::task_change::TaskChange;

/// The kinds of restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Restarts a failed task, with all its retries.
    Retry,
    /// Restarts any finished task from the beginning.
    Requeue,
}

impl Restart {
    /// Returns the statuses that allow it.
    fn from(self) -> Vec<&'static str> {
        let may_start = |status: &TaskStatus| match self {
            Self::Retry => matches!(status, TaskStatus::Failed | TaskStatus::Timeout),
            Self::Requeue => task_after(*status, TaskEvent::Requeue, *status).is_some(),
        };
        TaskStatus::ALL.into_iter().filter(may_start).map(TaskStatus::as_str).collect()
    }
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
    /// Makes tasks due, with failures and crashes reset, and records the event of each. `due_in_secs` returns the delay of the
    /// task at an index. `data` replaces their JSON text, which is a separate event. Returns one answer per task, in one
    /// transaction.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn restart_tasks(
        &mut self,
        ids: &[TaskId],
        restart: Restart,
        due_in_secs: &dyn Fn(usize) -> i64,
        event: &NewEvent,
        data: Option<(&str, &NewEvent)>,
    ) -> StoreResult<Vec<RestartAnswer>> {
        self.write_key_once(|conn| {
            enter_tasks(conn, ids)?;
            let mut answers = Vec::with_capacity(ids.len());
            for (place, id) in ids.iter().enumerate() {
                let answer = restart_task(conn, *id, restart, due_in_secs(place))?;
                if answer == RestartAnswer::Done {
                    if let Some((data, edited)) = data {
                        replace_data(conn, *id, data, edited)?;
                    }
                    insert_event(conn, &NewEvent { task_id: Some(*id), ..event.clone() })?;
                }
                answers.push(answer);
            }
            fault_point!("retry.before_commit");
            Ok(answers)
        })
    }
}

fn restart_task(
    conn: &mut AnyConnection,
    task_id: TaskId,
    restart: Restart,
    due_in_secs: i64,
) -> StoreResult<RestartAnswer> {
    if let Some(holder) = find_other_holder(conn, task_id, &restart.from())? {
        return Ok(RestartAnswer::KeyTaken(holder));
    }
    fault_point!("retry.key_free");
    if !hold_idle(conn, task_id)? {
        return refuse(conn, task_id);
    }
    let is_anew = restart == Restart::Requeue;
    let updated = diesel::update(dsl::task_queue.filter(dsl::id.eq(task_id.0)))
        .filter(dsl::last_status.eq_any(restart.from()))
        .filter(dsl::current_run_id.is_null())
        .set((
            is_anew.then(|| dsl::last_status.eq(TaskStatus::Scheduled.as_str())),
            is_anew.then(|| dsl::scheduled_on.eq(db_now_plus(due_in_secs))),
            dsl::failed_retries.eq(0),
            dsl::retry_limit.eq(None::<i32>),
            dsl::crashes.eq(0),
            dsl::quarantined_on.eq(None::<SqlMoment>),
            is_anew.then(|| dsl::next_attempt_on.eq(None::<SqlMoment>)),
            (!is_anew).then(|| dsl::next_attempt_on.eq(db_now_plus(due_in_secs).nullable())),
            dsl::updated_on.eq(db_now()),
        ))
        .execute(conn)?;
    if updated == 1 {
        forget_passed_start_before(conn, task_id, due_in_secs)?;
        return Ok(RestartAnswer::Done);
    }
    refuse(conn, task_id)
}

/// Removes the time before which the task had to start, if it will have passed when the task is due: it would expire again.
pub(super) fn forget_passed_start_before(
    conn: &mut AnyConnection,
    task_id: TaskId,
    due_in_secs: i64,
) -> StoreResult<()> {
    let passed = dsl::start_before.le(db_now_plus(due_in_secs).nullable());
    diesel::update(dsl::task_queue.filter(dsl::id.eq(task_id.0)).filter(passed))
        .set(dsl::start_before.eq(None::<SqlMoment>))
        .execute(conn)?;
    Ok(())
}

fn refuse(conn: &mut AnyConnection, task_id: TaskId) -> StoreResult<RestartAnswer> {
    let row = dsl::task_queue.filter(dsl::id.eq(task_id.0)).select(TaskRow::as_select()).first(conn).optional()?;
    Ok(row.map(Task::from).map_or(RestartAnswer::NoSuchTask, |task| RestartAnswer::Refused {
        has_open_run: task.current_run_id.is_some(),
        status: task.status.to_string(),
    }))
}

fn replace_data(conn: &mut AnyConnection, task_id: TaskId, data: &str, event: &NewEvent) -> StoreResult<()> {
    let this_task = || dsl::task_queue.filter(dsl::id.eq(task_id.0));
    let task: Task = this_task().select(TaskRow::as_select()).first(conn).map(Task::from)?;
    diesel::update(this_task()).set(dsl::task_data.eq(data)).execute(conn)?;
    let change = TaskChange { data: Some(data.to_owned()), ..TaskChange::default() };
    insert_event(conn, &NewEvent { task_id: Some(task_id), ..event.edited(&change, &task) })
}
