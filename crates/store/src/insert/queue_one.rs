//! Queues a single task without a key or prerequisites: one statement, which is a transaction on its own, in one round trip.
//!
//! If the server's answer is lost, it is unknown whether the task was inserted. The unique receipt in the row prevents a repeated
//! statement from inserting it twice, even if the first statement is executed later.

use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};

use crate::backend;
use crate::base::connection::AnyConnection;
use crate::base::new_task::NewTaskRow;
use crate::base::schema::task_queue::dsl;
use crate::{Store, StoreError, StoreResult};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::new_task::NewTask;
use taskqueue_host::random::ordered_token;

impl Store {
    /// Returns true if [`Store::insert_task`] can insert it.
    pub(crate) fn is_single(&mut self, task: &NewTask) -> StoreResult<bool> {
        let is_plain =
            task.unique.is_none() && !task.has_prerequisites() && task.recurrence.is_none() && !task.needs_now();
        Ok(is_plain && backend::has_round_trips(self.url.engine()) && self.auditor()?.is_none())
    }

    /// Inserts a task for which [`Store::is_single`] returned true.
    pub(crate) fn insert_task(&mut self, task: &NewTask) -> StoreResult<TaskId> {
        let row = NewTaskRow::new(task, 0, chrono::DateTime::UNIX_EPOCH);
        let receipt = ordered_token().map_err(|error| StoreError::NoRandomness(error.to_string()))?;
        let id = self.read(|conn| insert_once(conn, &row, &receipt))?;
        self.has_written = true;
        fault_point!("queue.one_committed");
        Ok(TaskId(id))
    }
}

fn insert_once(conn: &mut AnyConnection, row: &NewTaskRow, receipt: &str) -> StoreResult<i64> {
    match backend::insert_one(conn, row, receipt) {
        Err(error @ DieselError::DatabaseError(DatabaseErrorKind::UniqueViolation, _)) => {
            backend::forget_failed_statement(conn);
            let of_receipt = dsl::task_queue.filter(dsl::receipt.eq(receipt)).select(dsl::id);
            // It was inserted earlier, and the answer was lost.
            of_receipt.first(conn).optional()?.ok_or(StoreError::Database(error))
        }
        inserted => Ok(inserted?),
    }
}
