//! Starts waiting runs under the lock of the claim: the only code for all claims.

use std::collections::HashMap;

use diesel::prelude::*;
use diesel::result::QueryResult;

use crate::StoreResult;
use crate::backend::batch::{self, RunHolder, Start};
use crate::base::cells::{ShownText, TimeOrPast};
use crate::base::connection::AnyConnection;
use crate::base::content::{Content, ContentRow};
use crate::base::schema::{task_queue, task_queue_runs};
use crate::base::sql::{SqlMoment, db_now};
use crate::journal::events::insert_event;
use crate::records::runs::RunRef;
use crate::rules::key_slots::fit_key;
use crate::session::origin::Origin;
use crate::transitions::ending::end::end_waiting_run;
use crate::transitions::ending::run_end::RunEnd;
use crate::transitions::ending::set_aside::UnreadableRuns;
use taskqueue_domain::monitoring::run_times::due_on_of;
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::run::transition::{RunEvent, run_after};
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::ClaimedRun;

/// How many runs that cannot be executed are ended under one lock, so that other claims wait only some milliseconds.
pub(crate) const ENDS_PER_TRANSACTION: usize = 100;

/// The result of starting runs.
#[derive(Default)]
pub(crate) struct StartedRun {
    /// In the order of the starts.
    pub(crate) runs: Vec<ClaimedRun>,
    /// Started runs that cannot be passed to a handler.
    pub(crate) aside: UnreadableRuns,
    /// How many have ended instead.
    pub(crate) ended: usize,
    /// Tasks whose time to start has passed. They end after the claim, whose lock excludes the tables that this needs.
    pub(crate) expired: Vec<TaskId>,
}

/// Starts these runs. A run without a task, or whose task was cancelled in the tables, ends instead; after many ends, further ones
/// keep waiting. So do the runs of expired tasks.
pub(crate) fn start_waiting(
    conn: &mut AnyConnection,
    holder: &RunHolder<'_>,
    starts: &[Start<'_>],
    auditor: Option<&Origin>,
) -> StoreResult<StartedRun> {
    let rows = batch::start_runs(conn, holder, starts)?;
    fault_point!("claim.runs_written");
    let mut rows: HashMap<i64, _> = rows.into_iter().map(|row| (row.run_id, row)).collect();
    let mut started = StartedRun::default();
    for start in starts {
        let Some(row) = rows.remove(&start.run_id) else {
            if started.ended >= ENDS_PER_TRANSACTION {
                continue;
            }
            match end_instead(conn, start.run_id, auditor)? {
                Some(task_id) => started.expired.push(task_id),
                None => started.ended += 1,
            }
            continue;
        };
        match row.content.read() {
            Ok(content) => {
                let ids = (RunId(row.run_id), TaskId(row.task_id));
                started.runs.push(claimed_run(ids, row.token, row.attempt, row.started_on, content));
            }
            Err(problem) => started.aside.push((RunRef { id: RunId(row.run_id), token: row.token }, problem)),
        }
    }
    if let Some(origin) = auditor {
        for run in &started.runs {
            let details = serde_json::json!({
                "attempt": run.attempt, "runner": holder.runner_name, "claimant": holder.claimant
            });
            insert_event(conn, &origin.event("run-started", Some(run.task_id), Some(run.run_id), details))?;
        }
    }
    Ok(started)
}

/// Returns a claimed run, with the data that its handler needs.
pub(crate) fn claimed_run(
    (run_id, task_id): (RunId, TaskId),
    token: String,
    attempt: i32,
    started_on: SqlMoment,
    content: Content,
) -> ClaimedRun {
    ClaimedRun {
        run_id,
        task_id,
        class: content.class,
        data: content.data,
        token,
        attempt,
        max_retries: content.max_retries,
        task_timeout_secs: content.timeout_secs,
        planned_on: content.planned_on.into(),
        started_on: started_on.into(),
        due_on: content.due.and_then(|due| due_on_of(attempt, due)),
        trace: content.trace,
    }
}

/// A claimed run that has not ended.
#[derive(Queryable)]
pub(crate) struct HeldRunRow {
    pub(crate) run_id: i64,
    pub(crate) task_id: i64,
    pub(crate) token: Option<String>,
}

/// Returns the runs with these tokens, in the order of their ids.
pub(crate) fn held_with(conn: &mut AnyConnection, tokens: &[String]) -> QueryResult<Vec<HeldRunRow>> {
    use task_queue_runs::dsl;
    let mut held: Vec<HeldRunRow> = dsl::task_queue_runs
        .filter(dsl::running_class.is_not_null())
        .filter(dsl::token.eq_any(tokens))
        .select((dsl::id, dsl::task_queue_id, dsl::token))
        .load(conn)?;
    held.sort_unstable_by_key(|run| run.run_id);
    Ok(held)
}

/// Returns the runs that these tokens have claimed: the closure of a claim runs again after a COMMIT whose answer was lost.
pub(crate) fn already_claimed(conn: &mut AnyConnection, tokens: &[String]) -> StoreResult<StartedRun> {
    let mut started = StartedRun::default();
    for held in held_with(conn, tokens)? {
        load_held(conn, held.run_id, held.token.unwrap_or_default(), &mut started)?;
    }
    Ok(started)
}

/// Loads the data that the handler of a claimed run needs.
pub(crate) fn load_held(
    conn: &mut AnyConnection,
    run_id: i64,
    token: String,
    started: &mut StartedRun,
) -> StoreResult<()> {
    let ((task_id, attempt, started_on), content): ((i64, i32, Option<TimeOrPast>), ContentRow) =
        task_queue_runs::table
            .inner_join(task_queue::table.on(task_queue::id.eq(task_queue_runs::task_queue_id)))
            .filter(task_queue_runs::id.eq(run_id))
            .select((
                (task_queue::id, task_queue_runs::attempt, task_queue_runs::started_on),
                (
                    task_queue_runs::task_class,
                    task_queue::task_data,
                    task_queue::max_retries,
                    task_queue::timeout_secs,
                    task_queue::planned_on,
                    task_queue::scheduled_on,
                    task_queue::next_attempt_on,
                    task_queue::meta,
                ),
            ))
            .first(conn)?;
    match content.read() {
        Ok(content) => {
            let started_on = started_on.map_or(content.planned_on, SqlMoment::from);
            started.runs.push(claimed_run((RunId(run_id), TaskId(task_id)), token, attempt, started_on, content));
        }
        Err(problem) => started.aside.push((RunRef { id: RunId(run_id), token }, problem)),
    }
    Ok(())
}

/// Ends a waiting run that can never start; otherwise it would stay at the head of its class. Returns its task instead if that has
/// to end too, because it has expired.
fn end_instead(conn: &mut AnyConnection, run_id: i64, auditor: Option<&Origin>) -> StoreResult<Option<TaskId>> {
    let row: Option<(Option<ShownText>, Option<i64>, Option<TimeOrPast>)> = task_queue_runs::table
        .left_join(task_queue::table.on(task_queue::id.eq(task_queue_runs::task_queue_id)))
        .filter(task_queue_runs::id.eq(run_id))
        .select((task_queue_runs::limit_key, task_queue::id.nullable(), task_queue::live_start_before.nullable()))
        .first(conn)
        .optional()?;
    let Some((limit_key, task_id, live_start_before)) = row else { return Ok(None) };
    if live_start_before.is_some() {
        return Ok(task_id.map(TaskId));
    }
    if task_id.is_some() {
        let end =
            RunEnd::of(RunEvent::Cancel, "cancelled", "the task was cancelled", "cancelled before it was claimed");
        end_waiting_run(conn, RunId(run_id), &end, auditor)?;
    } else {
        end_orphan(conn, run_id)?;
    }
    if let Some(ShownText(key)) = limit_key {
        fit_key(conn, &key, None)?;
    }
    Ok(None)
}

fn end_orphan(conn: &mut AnyConnection, run_id: i64) -> StoreResult<()> {
    use task_queue_runs::dsl;
    let Some(status) = run_after(RunStatus::Scheduled, RunEvent::Fail) else { return Ok(()) };
    diesel::update(dsl::task_queue_runs)
        .filter(dsl::id.eq(run_id))
        .filter(dsl::status.eq(RunStatus::Scheduled.as_str()))
        .set((
            dsl::status.eq(status.as_str()),
            dsl::finished_on.eq(db_now().nullable()),
            dsl::error_code.eq("no-task"),
            dsl::error_message.eq("the task of this run does not exist"),
            dsl::updated_on.eq(db_now()),
        ))
        .execute(conn)?;
    Ok(())
}
