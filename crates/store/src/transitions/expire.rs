//! Ends tasks whose time to start has passed: `create-runs` finds them by an index, a claim when it is about to start them.

use diesel::prelude::*;

use super::ending::end::end_waiting_run;
use super::ending::keep::keep_as_classes_state;
use super::ending::run_end::RunEnd;
use super::keep_claims_out;
use crate::backend;
use crate::base::connection::AnyConnection;
use crate::base::schema::{task_queue, task_queue_runs};
use crate::base::sql::{SqlMoment, db_now};
use crate::base::unmarked::processed_run;
use crate::journal::events::insert_event;
use crate::rules::dependencies::satisfy_dependants;
use crate::session::origin::Origin;
use crate::{Store, StoreResult};
use taskqueue_domain::run::status::{RunStatus, TaskStatus};
use taskqueue_domain::run::transition::{RunEvent, TaskEvent, task_after};
use taskqueue_domain::task::ids::{RunId, TaskId};

/// Tasks that end in one transaction.
const TASKS_PER_TRANSACTION: usize = 500;
/// Ids that are read at once.
const TASKS_READ: i64 = 10_000;

impl Store {
    /// Ends all tasks whose time to start has passed and that have no run in progress. Returns how many.
    ///
    /// # Errors
    /// The database could not be written; tasks that ended in earlier transactions stay so.
    pub fn end_expired_tasks(&mut self) -> StoreResult<usize> {
        let mut total = 0;
        loop {
            let ids: Vec<i64> = self.read(|conn| {
                use task_queue::dsl;
                // Bound as a value: PostgreSQL cannot use an index with a function of the clock.
                let now: SqlMoment = diesel::select(db_now()).get_result(conn)?;
                let passed = dsl::task_queue.filter(dsl::live_start_before.le(now));
                let passed = passed.order((dsl::live_start_before, dsl::id)).limit(TASKS_READ);
                Ok(passed.select(dsl::id).load(conn)?)
            })?;
            let ended = self.end_expired(&ids.iter().copied().map(TaskId).collect::<Vec<_>>())?;
            total += ended;
            // The rest has a run in progress.
            if ended == 0 || i64::try_from(ids.len()).unwrap_or(i64::MAX) < TASKS_READ {
                return Ok(total);
            }
        }
    }

    /// Ends the newest tasks of schedules whose time to start has passed and that have no run in progress. Returns how many.
    ///
    /// # Errors
    /// The database could not be written; tasks that ended in earlier transactions stay so.
    pub fn end_expired_heads(&mut self) -> StoreResult<usize> {
        let ids: Vec<i64> = self.read(|conn| {
            use task_queue::dsl;
            let heads = dsl::task_queue.filter(dsl::schedule_head.eq_any(["waiting", "open"]));
            let expired =
                heads.filter(dsl::live_start_before.le(db_now().nullable())).filter(processed_run().is_null());
            Ok(expired.order((dsl::schedule_head, dsl::scheduled_on, dsl::id)).select(dsl::id).load(conn)?)
        })?;
        self.end_expired(&ids.into_iter().map(TaskId).collect::<Vec<_>>())
    }

    /// Ends those of these tasks whose time to start has passed and that have no run in progress. Returns how many.
    pub(super) fn end_expired(&mut self, ids: &[TaskId]) -> StoreResult<usize> {
        let (auditor, origin, keep_of) = (self.auditor()?, self.origin.clone(), self.keep_of.clone());
        let mut total = 0;
        for part in ids.chunks(TASKS_PER_TRANSACTION) {
            let ended = self.write_key(|conn| {
                // Holds the rows, without claims and creations of runs: no task starts or gets another time meanwhile.
                backend::lock_gate(conn, "create-runs")?;
                backend::enter_both_tables(conn)?;
                keep_claims_out(conn)?;
                backend::lock_tasks(conn, &part.iter().map(|id| id.0).collect::<Vec<_>>())?;
                let mut ended = Vec::new();
                for (id, start_before) in still_expired(conn, part)? {
                    if end_task(conn, id, start_before, &origin, auditor.as_ref())? {
                        ended.push(id);
                    }
                }
                keep_as_classes_state(conn, keep_of.as_ref(), &ended.iter().map(|id| id.0).collect::<Vec<_>>())?;
                Ok(ended)
            })?;
            self.pass_on_slots_of(&ended);
            total += ended.len();
        }
        Ok(total)
    }
}

/// Returns those of these tasks that may not start any more, each with the time before which it had to.
fn still_expired(conn: &mut AnyConnection, ids: &[TaskId]) -> StoreResult<Vec<(TaskId, SqlMoment)>> {
    use task_queue::dsl;
    let rows: Vec<(i64, Option<SqlMoment>)> = dsl::task_queue
        .filter(dsl::id.eq_any(ids.iter().map(|id| id.0)))
        .filter(dsl::live_start_before.le(db_now().nullable()))
        .order(dsl::id)
        .select((dsl::id, dsl::live_start_before))
        .load(conn)?;
    Ok(rows.into_iter().filter_map(|(id, start_before)| Some((TaskId(id), start_before?))).collect())
}

/// Ends a task whose row this transaction has locked. Returns false if its run is in progress.
fn end_task(
    conn: &mut AnyConnection,
    id: TaskId,
    start_before: SqlMoment,
    origin: &Origin,
    auditor: Option<&Origin>,
) -> StoreResult<bool> {
    use task_queue_runs::dsl;
    let open: Option<(i64, String)> = dsl::task_queue_runs
        .filter(dsl::open_task_id.eq(id.0))
        .select((dsl::id, dsl::status))
        .first(conn)
        .optional()?;
    let run_id = open.as_ref().map(|(run_id, _)| RunId(*run_id));
    let has_ended = match open {
        Some((run_id, status)) if status == RunStatus::Scheduled.as_str() => {
            let end = RunEnd::of(RunEvent::Expire, "expired", "its task expired", "expired before it was claimed");
            end_waiting_run(conn, RunId(run_id), &end, auditor)?
        }
        Some(_) => false,
        None => end_idle_task(conn, id)?,
    };
    if has_ended {
        let details = serde_json::json!({ "start_before": start_before });
        insert_event(conn, &origin.event("expired", Some(id), run_id, details))?;
    }
    Ok(has_ended)
}

fn end_idle_task(conn: &mut AnyConnection, id: TaskId) -> StoreResult<bool> {
    use task_queue::dsl;
    let this_task = || dsl::task_queue.filter(dsl::id.eq(id.0));
    let status: String = this_task().select(dsl::last_status).first(conn)?;
    let after = TaskStatus::parse(&status).and_then(|from| task_after(from, TaskEvent::Expire, from));
    let Some(after) = after else { return Ok(false) };
    let ended = diesel::update(this_task())
        .filter(dsl::last_status.eq(status))
        .set((
            dsl::last_status.eq(after.as_str()),
            dsl::current_run_id.eq(None::<i64>),
            dsl::class_keep_secs.eq(None::<i32>),
            dsl::updated_on.eq(db_now()),
        ))
        .execute(conn)?;
    if ended == 1 {
        satisfy_dependants(conn, id.0, false)?;
    }
    Ok(ended == 1)
}
