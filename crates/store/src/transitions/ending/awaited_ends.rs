//! Satisfies the dependencies on tasks that were finished by a plain UPDATE, which satisfies none. `create-runs` finds them.

use diesel::prelude::*;

use crate::backend;
use crate::base::schema::task_queue;
use crate::rules::dependencies::satisfy_dependants;
use crate::transitions::keep_claims_out;
use crate::{Store, StoreResult};
use taskqueue_domain::run::status::TaskStatus;

/// Prerequisites that are handled in one transaction.
const TASKS_PER_TRANSACTION: usize = 100;
/// Ids that are read at once.
const TASKS_READ: i64 = 10_000;

/// The statuses of a task that is finished, whatever its other columns say.
pub(crate) const DONE: [&str; 3] =
    [TaskStatus::Success.as_str(), TaskStatus::Cancelled.as_str(), TaskStatus::Expired.as_str()];
/// The statuses of a task whose last attempt failed.
pub(crate) const FAILED: [&str; 2] = [TaskStatus::Failed.as_str(), TaskStatus::Timeout.as_str()];

/// The prerequisites that are finished and that a task still waits for, although any end is enough for it.
macro_rules! missed_ends {
    () => {{
        use $crate::base::schema::{task_queue, task_queue_dependencies};
        use $crate::transitions::ending::awaited_ends::{DONE, FAILED};
        let is_exhausted = task_queue::last_status
            .eq_any(FAILED)
            .and(task_queue::failed_retries.ge($crate::base::sql::allowed_retries()))
            .and($crate::base::unmarked::open_run().is_null());
        let is_set_aside = task_queue::quarantined_on.is_not_null();
        task_queue_dependencies::table
            .inner_join(task_queue::table.on(task_queue::id.nullable().eq(task_queue_dependencies::awaited_end)))
            .filter(task_queue_dependencies::awaited_end.is_not_null())
            .filter(task_queue::last_status.eq_any(DONE).or(is_exhausted).or(is_set_aside))
            .select(task_queue::id)
    }};
}
pub(crate) use missed_ends;

impl Store {
    /// Satisfies the dependencies for which any end is enough, on tasks that are finished.
    ///
    /// # Errors
    /// The database could not be written; what earlier transactions changed stays so.
    pub fn satisfy_missed_ends(&mut self) -> StoreResult<()> {
        let ids: Vec<i64> = self.read(|conn| {
            let missed = missed_ends!().distinct().order(task_queue::id).limit(TASKS_READ);
            Ok(missed.load(conn)?)
        })?;
        for part in ids.chunks(TASKS_PER_TRANSACTION) {
            self.write_key(|conn| {
                backend::lock_gate(conn, "create-runs")?;
                backend::enter_both_tables(conn)?;
                keep_claims_out(conn)?;
                backend::lock_tasks(conn, part)?;
                // Read again, now that no other transaction can restart them.
                for row in backend::lock_prerequisites(conn, part)? {
                    if row.satisfies(false) {
                        satisfy_dependants(conn, row.id, false)?;
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}
