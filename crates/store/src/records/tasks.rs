//! TaskQueue: queries, and the creation of runs for due tasks. Changes of a status are in `transitions`.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::result::QueryResult;

use crate::backend::{self, DueFrom};
use crate::base::connection::AnyConnection;
use crate::base::rows::TaskRow;
use crate::base::schema::task_queue::dsl::{id, planned_on, scheduled_on, start_before, task_queue};
use crate::base::sql::{SqlMoment, any_year, db_now};
use crate::journal::audit::{keep_created, newest_run};
use crate::rules::key_slots::is_any_waiting_for_key;
use crate::{Store, StoreError, StoreResult};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Task;

/// Due tasks that get their runs in one transaction: limits how long others wait.
const RUNS_PER_TRANSACTION: i64 = 20_000;

/// Sets when a task is to be processed, and its planned time, of any year.
pub(crate) fn plan_task(
    conn: &mut AnyConnection,
    task_id: TaskId,
    on: SqlMoment,
    planned: Option<SqlMoment>,
) -> QueryResult<()> {
    let this_task = task_queue.filter(id.eq(task_id.0));
    let scheduled = scheduled_on.eq(any_year(on));
    match planned {
        Some(planned) => {
            diesel::update(this_task).set((planned_on.eq(any_year(planned).nullable()), scheduled)).execute(conn)
        }
        None => diesel::update(this_task).set((planned_on.eq(None::<SqlMoment>), scheduled)).execute(conn),
    }
    .map(drop)
}

/// Sets when a task expires, of any year.
pub(crate) fn set_start_before(conn: &mut AnyConnection, task_id: TaskId, on: Option<SqlMoment>) -> QueryResult<()> {
    let this_task = task_queue.filter(id.eq(task_id.0));
    match on {
        Some(on) => diesel::update(this_task).set(start_before.eq(any_year(on).nullable())).execute(conn),
        None => diesel::update(this_task).set(start_before.eq(None::<SqlMoment>)).execute(conn),
    }
    .map(drop)
}

impl Store {
    /// Returns the task with this id.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]
    pub fn get_task(&mut self, task_id: TaskId) -> StoreResult<Task> {
        let found = self.read(|conn| {
            Ok(task_queue.filter(id.eq(task_id.0)).select(TaskRow::as_select()).first(conn).optional()?)
        })?;
        found.map(Task::from).ok_or_else(|| StoreError::NotFound(format!("task {task_id}")))
    }

    /// Creates the missing runs: one for every due task. Returns how many. Safe to call concurrently: one process creates at a
    /// time; the others wait and then find nothing to do.
    ///
    /// # Errors
    /// The database could not be written; runs created by earlier transactions remain.
    pub fn create_missing_runs(&mut self, created: &mut dyn FnMut(usize)) -> StoreResult<usize> {
        let (total, kept_after) = self.create_due_runs(created)?;
        self.give_key_slots(kept_after)?;
        Ok(total)
    }

    /// Same as [`Store::create_missing_runs`], if runs wait for a slot of their limit key; otherwise does nothing. A worker claims
    /// waiting runs before due tasks: if it did not create runs meanwhile, tasks would wait until the last run of each key ends.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn create_missing_runs_beside_keys(&mut self) -> StoreResult<usize> {
        if !self.read(|conn| Ok(is_any_waiting_for_key(conn)?))? {
            return Ok(0);
        }
        let (total, kept_after) = self.create_due_runs(&mut |_| {})?;
        self.give_new_runs_slots(kept_after)?;
        Ok(total)
    }

    fn create_due_runs(&mut self, created: &mut dyn FnMut(usize)) -> StoreResult<(usize, Option<i64>)> {
        let mut from = DueFrom::beginning();
        // Most calls find nothing to do; they need neither the lock nor a transaction.
        if self.read(|conn| Ok(backend::find_due(conn, from)?))?.is_none() {
            return Ok((0, None));
        }
        let auditor = self.auditor()?;
        let (mut total, mut kept_after) = (0, None);
        loop {
            let part = self.write(|conn| {
                backend::lock_gate(conn, "create-runs")?;
                backend::enter_both_tables(conn)?;
                fault_point!("create.gate_locked");
                let Some(first) = backend::find_due(conn, from)? else { return Ok(None) };
                let newest = newest_run(conn)?;
                let created = backend::create_due_runs(conn, first, RUNS_PER_TRANSACTION)?;
                if let Some(origin) = &auditor {
                    keep_created(conn, origin, newest)?;
                }
                fault_point!("create.before_commit");
                Ok(Some((first, newest, created)))
            })?;
            let Some((first, newest, count)) = part else { break };
            from = first;
            if total == 0 {
                kept_after = Some(newest);
            }
            total += count;
            created(total);
            fault_point!("create.committed");
            if i64::try_from(count).unwrap_or(i64::MAX) < RUNS_PER_TRANSACTION {
                break;
            }
        }
        Ok((total, kept_after))
    }

    /// Returns the database's clock (rule R8).
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn now(&mut self) -> StoreResult<DateTime<Utc>> {
        self.read(|conn| Ok(diesel::select(db_now()).get_result::<SqlMoment>(conn)?.into()))
    }
}
