//! A task that failed gets a new start: its failures and crashes are forgotten. Its status stays that of its last attempt.

use diesel::prelude::*;

use super::super::backend::AnyConnection;
use super::super::events::{NewEvent, insert_event};
use super::super::schema::task_queue::dsl;
use super::super::sql::{Moment, db_now};
use super::super::{Store, StoreResult};
use super::enter_tasks;
use crate::domain::ids::TaskId;
use crate::domain::status::TaskStatus;

/// The answer to a retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryAnswer {
    /// It is due now, with all its retries.
    Retried,
    /// Its last attempt did not fail, or it has an open run; with its status.
    Refused {
        /// LastStatus
        status: String,
        /// Whether a run of it waits or is processed.
        has_open_run: bool,
    },
    /// There is no such task.
    NoSuchTask,
}

impl Store {
    /// Makes failed, exhausted or quarantined tasks due now, with all their retries, and keeps the event of each. One answer
    /// for each task, in one transaction.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn retry_tasks(&mut self, ids: &[TaskId], event: &NewEvent) -> StoreResult<Vec<RetryAnswer>> {
        self.write_once(|conn| {
            enter_tasks(conn, ids)?;
            let answers = ids.iter().map(|id| retry_task(conn, *id, event)).collect::<StoreResult<_>>()?;
            fault_point!("retry.before_commit");
            Ok(answers)
        })
    }
}

fn retry_task(conn: &mut AnyConnection, task_id: TaskId, event: &NewEvent) -> StoreResult<RetryAnswer> {
    let failed = [TaskStatus::Failed, TaskStatus::Timeout].map(TaskStatus::as_str);
    let updated = diesel::update(dsl::task_queue.filter(dsl::id.eq(task_id.0)))
        .filter(dsl::last_status.eq_any(failed))
        .filter(dsl::current_run_id.is_null())
        .set((
            dsl::failed_retries.eq(0),
            dsl::crashes.eq(0),
            dsl::quarantined_on.eq(None::<Moment>),
            dsl::scheduled_on.eq(db_now()),
            dsl::updated_on.eq(db_now()),
        ))
        .execute(conn)?;
    if updated == 1 {
        insert_event(conn, &NewEvent { task_id: Some(task_id), ..event.clone() })?;
        return Ok(RetryAnswer::Retried);
    }
    let found: Option<(String, Option<i64>)> = dsl::task_queue
        .filter(dsl::id.eq(task_id.0))
        .select((dsl::last_status, dsl::current_run_id))
        .first(conn)
        .optional()?;
    Ok(found.map_or(RetryAnswer::NoSuchTask, |(status, run)| RetryAnswer::Refused {
        status,
        has_open_run: run.is_some(),
    }))
}
