//! TaskQueueReceipts: shows after a lost COMMIT whether it succeeded, for rows that have no other protection against being
//! written twice.

use diesel::prelude::*;

use crate::backend;
use crate::base::connection::AnyConnection;
use crate::base::schema::task_queue_receipts::dsl::{task_queue_receipts, written_on};
use crate::base::sql::db_now_plus;
use crate::{Store, StoreError, StoreResult};
use taskqueue_host::random::token;

/// Longer than any call is repeated, even with wrong clocks and long locks.
pub(crate) const KEPT_SECS: i64 = 3_600;

impl Store {
    /// Runs a closure in one transaction that writes data that must not be written twice, such as rows with new ids. The closure
    /// may run more than once, but only one of its transactions is committed.
    pub(crate) fn write_once<T: Clone>(
        &mut self,
        mut work: impl FnMut(&mut AnyConnection) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let token = token().map_err(|error| StoreError::NoRandomness(error.to_string()))?;
        let mut written = None;
        self.write(|conn| {
            if !backend::leave_receipt(conn, &token)?
                && let Some(value) = &written
            {
                return Ok(T::clone(value));
            }
            fault_point!("receipts.left");
            let value = work(conn)?;
            written = Some(value.clone());
            Ok(value)
        })
    }

    /// Removes receipts that are no longer needed. Returns how many.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn remove_old_receipts(&mut self) -> StoreResult<usize> {
        self.write(|conn| {
            let old = task_queue_receipts.filter(written_on.lt(db_now_plus(-KEPT_SECS)));
            let removed = diesel::delete(old).execute(conn)?;
            fault_point!("receipts.before_remove_commit");
            Ok(removed)
        })
    }
}
