//! How many tasks finished in a span of time: read from the index of the statuses alone, never from the rows.

use chrono::{DateTime, Utc};
use diesel::dsl::count_star;
use diesel::prelude::*;

use super::status::{FINISHED, FINISHED_WITH_KEEP};
use crate::base::schema::task_queue;
use crate::base::sql::SqlMoment;
use crate::{Store, StoreResult};
use taskqueue_domain::run::retention::Retention;
use taskqueue_domain::run::status::TaskStatus;

impl Store {
    /// Counts the tasks that finished from `from` on and before `until`, by status, without those that will be retried. A task
    /// whose unique key is kept for longer counts when that time ends: the index has it there. Deleted tasks are not counted.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn count_ends(&mut self, from: DateTime<Utc>, until: DateTime<Utc>) -> StoreResult<Vec<(TaskStatus, i64)>> {
        use task_queue::dsl;
        let (from, until) = (SqlMoment::from(from), SqlMoment::from(until));
        self.read(|conn| {
            let counts: Vec<(String, i64)> = dsl::task_queue
                .filter(dsl::last_status.eq_any(Retention::FINISHED.map(TaskStatus::as_str)))
                .filter(dsl::finished.eq_any([FINISHED, FINISHED_WITH_KEEP]))
                .filter(dsl::status_on.ge(from))
                .filter(dsl::status_on.lt(until))
                .group_by(dsl::last_status)
                .select((dsl::last_status, count_star()))
                .load(conn)?;
            Ok(counts.into_iter().filter_map(|(status, count)| Some((TaskStatus::parse(&status)?, count))).collect())
        })
    }
}
