//! What is ahead of a waiting run, and what is waiting at all, to explain why nothing is processed. Read from indexes and counted
//! only up to limits.

use std::collections::HashMap;
use std::ops::Bound;

use chrono::{DateTime, Utc};
use diesel::dsl::count_star;
use diesel::prelude::*;

use crate::base::cells::Cell;
use crate::base::counted::{Counted, count_up_to};
use crate::base::rows::TaskRow;
use crate::base::schema::{task_queue, task_queue_runs};
use crate::base::sql::{SqlMoment, db_now};
use crate::base::unmarked::open_run;
use crate::reading::heads::next_head;
use crate::{Store, StoreResult};
use taskqueue_domain::run::status::Stored;
use taskqueue_domain::task::ids::{RunId, RunnerId, TaskId};
use taskqueue_domain::task::records::Task;

/// The highest count of runs ahead of another one.
const BEFORE_LIMIT: i64 = 1_000;

impl Store {
    /// Returns how many runs of its class are claimed before this waiting run; 0 if it is not waiting.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn count_runs_before(&mut self, run_id: RunId) -> StoreResult<Counted> {
        use task_queue_runs::dsl;
        self.read(|conn| {
            let place: Option<(Option<String>, i32, Cell<SqlMoment>)> = dsl::task_queue_runs
                .filter(dsl::id.eq(run_id.0))
                .select((dsl::claim_class, dsl::claim_order, dsl::lined_up_on))
                .first(conn)
                .optional()?;
            let Some((Some(class), order, on)) = place else { return Ok(Counted::default()) };
            let Ok(on) = on.read("LinedUpOn") else { return Ok(Counted::default()) };
            let is_earlier = dsl::lined_up_on.lt(on).or(dsl::lined_up_on.eq(on).and(dsl::id.lt(run_id.0)));
            let is_before = dsl::claim_order.lt(order).or(dsl::claim_order.eq(order).and(is_earlier));
            let before = dsl::task_queue_runs
                .filter(dsl::claim_class.eq(class))
                .filter(is_before)
                .order((dsl::claim_class, dsl::claim_order, dsl::lined_up_on, dsl::id))
                .select(dsl::id);
            Ok(count_up_to!(BEFORE_LIMIT, before, conn)?)
        })
    }

    /// Returns how many claimed runs of each runner have not ended, including runs claimed ahead.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn count_runs_of_runners(&mut self) -> StoreResult<HashMap<RunnerId, i64>> {
        use task_queue_runs::dsl;
        let counts: Vec<(Option<i64>, i64)> = self.read(|conn| {
            let processing = dsl::task_queue_runs.filter(dsl::running_class.is_not_null());
            Ok(processing.group_by(dsl::runner_id).select((dsl::runner_id, count_star())).load(conn)?)
        })?;
        Ok(counts.into_iter().filter_map(|(runner, count)| Some((RunnerId(runner?), count))).collect())
    }

    /// Returns the task of the first waiting run of each class, for up to `limit` classes.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_first_waiting(&mut self, limit: usize) -> StoreResult<Vec<TaskId>> {
        use task_queue_runs::dsl;
        self.read(|conn| {
            let (mut tasks, mut last_class) = (Vec::new(), String::new());
            while tasks.len() < limit {
                let Some((class, run_id, ..)) = next_head(conn, Bound::Excluded(&last_class), None)? else { break };
                let task: i64 =
                    dsl::task_queue_runs.filter(dsl::id.eq(run_id)).select(dsl::task_queue_id).first(conn)?;
                tasks.push(TaskId(task));
                // A name that cannot be read stops the scan; the next claim sets its run aside.
                let Stored::Known(class) = class else { break };
                last_class = class.to_string();
            }
            Ok(tasks)
        })
    }

    /// Returns the tasks of up to `limit` runs that wait for a slot of their limit key.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_first_waiting_for_keys(&mut self, limit: i64) -> StoreResult<Vec<TaskId>> {
        use task_queue_runs::dsl;
        self.read_each(TaskId, |conn| {
            let waiting = dsl::task_queue_runs.filter(dsl::waiting_key.is_not_null());
            let in_order = waiting.order((dsl::waiting_key, dsl::claim_order, dsl::id));
            in_order.limit(limit).select(dsl::task_queue_id).load(conn)
        })
    }

    /// Returns the `limit` tasks that have been due longest and have no run.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_first_due(&mut self, limit: i64) -> StoreResult<Vec<Task>> {
        use task_queue::dsl;
        self.read_each(Task::from, |conn| {
            // Bound as a value: PostgreSQL cannot use an index with a function of the clock.
            let now: SqlMoment = diesel::select(db_now()).get_result(conn)?;
            let due = dsl::task_queue.filter(dsl::due_on.le(now)).filter(open_run().is_null());
            let due = due.order((dsl::due_on, dsl::id));
            due.limit(limit).select(TaskRow::as_select()).load(conn)
        })
    }

    /// Returns the `limit` tasks that were quarantined last.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_quarantined_tasks(&mut self, limit: i64) -> StoreResult<Vec<Task>> {
        use task_queue::dsl;
        self.read_each(Task::from, |conn| {
            let quarantined = dsl::task_queue.filter(dsl::quarantined_on.is_not_null());
            let newest = quarantined.order((dsl::quarantined_on.desc(), dsl::id.desc())).limit(limit);
            newest.select(TaskRow::as_select()).load(conn)
        })
    }

    /// Returns the task that becomes due next, with its time, of those that wait only for their time.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn find_next_due(&mut self) -> StoreResult<Option<(TaskId, DateTime<Utc>)>> {
        use task_queue::dsl;
        let next: Option<(i64, SqlMoment)> = self.read(|conn| {
            let now: SqlMoment = diesel::select(db_now()).get_result(conn)?;
            let later = dsl::task_queue.filter(dsl::due_on.gt(now)).order((dsl::due_on, dsl::id));
            Ok(later.select((dsl::id, dsl::scheduled_on)).first(conn).optional()?)
        })?;
        Ok(next.map(|(id, on)| (TaskId(id), on.into())))
    }
}
