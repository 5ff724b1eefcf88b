//! A task that failed gets a new start: its failures and crashes are forgotten. Its status stays that of its last attempt.

use diesel::prelude::*;

use super::super::events::{NewEvent, insert_event};
use super::super::schema::task_queue::dsl;
use super::super::sql::{Moment, db_now};
use super::super::unique::find_other_holder;
use super::super::{Store, StoreResult};
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
    /// Another live task, queued since, has its key: that one wins.
    KeyTaken {
        /// The key.
        key: String,
        /// Who has it.
        holder: TaskId,
        /// Its status.
        status: String,
    },
    /// There is no such task.
    NoSuchTask,
}

impl Store {
    /// Makes a failed, exhausted or quarantined task due now, with all its retries, and keeps the event.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn retry_task(&mut self, task_id: TaskId, event: &NewEvent) -> StoreResult<RetryAnswer> {
        let failed = [TaskStatus::Failed, TaskStatus::Timeout].map(TaskStatus::as_str);
        self.write_key_once(|conn| {
            if let Some((key, holder)) = find_other_holder(conn, task_id)? {
                return Ok(RetryAnswer::KeyTaken { key, holder: TaskId(holder.id), status: holder.status });
            }
            fault_point!("retry.key_free");
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
                insert_event(conn, event)?;
                fault_point!("retry.before_commit");
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
        })
    }
}
