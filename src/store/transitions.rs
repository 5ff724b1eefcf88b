//! Every change of a status, as compare-and-set: a write says from which status (and with which token) it starts and
//! must touch one row. Task and run change in one transaction (rule R4). Which changes exist is the domain's matter.

use diesel::prelude::*;
use diesel::sql_types::{Bool, Nullable};
use serde::{Deserialize, Serialize};

use super::backend::{self, AnyConnection, ClassAtHost};
use super::events::{NewEvent, insert_event};
use super::runs::RunRef;
use super::schema::{task_queue, task_queue_run_outputs, task_queue_runs};
use super::sql::{Moment, db_now, db_now_plus};
use super::{Store, StoreError, StoreResult};
use crate::domain::backoff::Backoff;
use crate::domain::ids::{RunId, RunnerId, TaskId};
use crate::domain::records::{ClaimedRun, RunOutput};
use crate::domain::status::{RunStatus, TaskStatus};
use crate::domain::transition::{RunEvent, TaskEvent, aggregated, failed_retries_after, run_after, task_after};

/// Who claims, what it may claim, and for how long.
pub struct Claim<'a> {
    /// The claiming runner's row.
    pub runner_id: RunnerId,
    /// Its PID.
    pub process_id: i64,
    /// Its host.
    pub host: &'a str,
    /// Who it is, beyond its PID.
    pub process_identity: &'a str,
    /// The fence of the claimed run: new and random for each claim.
    pub token: &'a str,
    /// Whether runs of this class can be executed here.
    pub is_runnable: &'a dyn Fn(&str) -> bool,
    /// Seconds until anybody may take the run, unless the lease is renewed.
    pub lease_secs: i64,
}

/// The answer to a claim of one specific run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecificClaim {
    /// It is ours.
    Claimed(Box<ClaimedRun>),
    /// It cannot be claimed: it is in this status, or of a class that cannot be executed here.
    Refused {
        /// The status that it has.
        status: String,
        /// Its class.
        class: String,
    },
}

/// How a run ends, and what that means for its task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunEnd {
    /// What happens to the run.
    pub event: RunEvent,
    /// Whether the task is tried again while retries are left.
    pub may_retry: bool,
    /// Seconds until the next attempt; `None` leaves it to the backoff.
    pub delay_secs: Option<i64>,
    /// How long failed attempts wait.
    pub backoff: Backoff,
    /// Empty on success.
    pub error_code: String,
    /// Empty on success.
    pub error_message: String,
    /// What was decided, and by which rule.
    pub decision: String,
    /// PID and identity of the handler; `None` keeps what was saved before.
    pub handler: Option<(i64, String)>,
    /// 0 to 100; `None` keeps what was saved before. 100 after a success.
    pub percents_completed: Option<i32>,
    /// The last line for people; `None` keeps what was saved before.
    pub message: Option<String>,
    /// JSON text; `None` keeps what was saved before.
    pub results: Option<String>,
    /// What the handler wrote.
    pub outputs: Vec<RunOutput>,
    /// Host and seconds for which the class is held, for the reason in `error_message`.
    pub hold: Option<(String, i64)>,
    /// What must still be true of the run.
    #[serde(skip)]
    pub condition: EndCondition,
    /// Kept with the end or not at all.
    #[serde(skip)]
    pub note: Option<NewEvent>,
}

/// What must be true of a run that is ended, beyond its status and its token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndCondition {
    /// Nothing more.
    #[default]
    Held,
    /// Its lease is over: the runner may have renewed it since somebody looked.
    LeaseOver,
}

/// The answer to a write that ends a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It ended as asked.
    Recorded,
    /// Somebody else was first: the run has this status, or another token.
    Lost {
        /// The status that it has.
        found: String,
    },
}

type Head = (String, i64, i32);

impl Store {
    /// Claims the first run that can be executed here (rule R6): by priority, then id. `None` when there is none.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn claim_next_run(&mut self, claim: &Claim<'_>) -> StoreResult<Option<ClaimedRun>> {
        self.claim_write(|conn| {
            if let Some(run) = already_claimed(conn, claim)? {
                return Ok(Some(run));
            }
            while let Some((_, run_id, _)) = first_claimable(conn, claim.is_runnable)? {
                if let Some(run) = claim_run(conn, claim, run_id)? {
                    return Ok(Some(run));
                }
            }
            Ok(None)
        })
    }

    /// Claims this run, whatever stands before it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]
    pub fn claim_specific_run(&mut self, run_id: RunId, claim: &Claim<'_>) -> StoreResult<SpecificClaim> {
        use task_queue_runs::dsl;
        self.claim_write(|conn| {
            if let Some(run) = already_claimed(conn, claim)? {
                return Ok(SpecificClaim::Claimed(Box::new(run)));
            }
            let row: Option<(String, String)> = dsl::task_queue_runs
                .filter(dsl::id.eq(run_id.0))
                .select((dsl::status, dsl::task_class))
                .first(conn)
                .optional()?;
            let Some((status, class)) = row else { return Err(StoreError::NotFound(format!("run {run_id}"))) };
            if status == RunStatus::Scheduled.as_str()
                && (claim.is_runnable)(&class)
                && let Some(run) = claim_run(conn, claim, run_id.0)?
            {
                return Ok(SpecificClaim::Claimed(Box::new(run)));
            }
            Ok(SpecificClaim::Refused { status, class })
        })
    }

    /// Creates the run of this one task if it is due, and returns its open run, whoever created it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]
    pub fn open_run_of(&mut self, task_id: TaskId) -> StoreResult<Option<RunId>> {
        use task_queue::dsl;
        self.write(|conn| {
            backend::lock_gate(conn, "create-runs")?;
            backend::enter_both_tables(conn)?;
            type Row = (String, i32, i32, Option<i64>);
            let due: Option<Row> = dsl::task_queue
                .filter(dsl::id.eq(task_id.0))
                .filter(dsl::due_on.le(db_now().nullable()))
                .select((dsl::task_class, dsl::priority, dsl::attempts, dsl::current_run_id))
                .first(conn)
                .optional()?;
            if let Some((class, priority, attempts, _)) = due {
                create_one_run(conn, task_id, &class, priority, attempts)?;
            }
            let open: Option<i64> = task_queue_runs::table
                .filter(task_queue_runs::open_task_id.eq(task_id.0))
                .select(task_queue_runs::id)
                .first(conn)
                .optional()?;
            diesel::update(dsl::task_queue.filter(dsl::id.eq(task_id.0)).filter(dsl::current_run_id.is_null()))
                .set(dsl::current_run_id.eq(open))
                .execute(conn)?;
            Ok(open.map(RunId))
        })
    }

    /// Ends a run and aggregates it into its task. The run must still be processing under this token (rule R3).
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn end_run(&mut self, run: &RunRef, end: &RunEnd) -> StoreResult<Ended> {
        let Some(status) = run_after(RunStatus::Processing, end.event) else {
            return Ok(Ended::Lost { found: "no such end".to_owned() });
        };
        // Set by an attempt whose COMMIT came to nothing, or whose answer was lost: only then can a run that is over have
        // been ended by this very call.
        let mut was_written = false;
        self.write(|conn| {
            backend::enter_both_tables(conn)?;
            if !end_run_if_processing(conn, run, end, status)? {
                return if was_written { repeated_or_lost(conn, run, end, status) } else { lost(conn, run) };
            }
            aggregate_into_task(conn, run.id, end)?;
            if let Some(event) = &end.note {
                insert_event(conn, event)?;
            }
            for output in &end.outputs {
                diesel::insert_into(task_queue_run_outputs::table)
                    .values((
                        task_queue_run_outputs::run_id.eq(run.id.0),
                        task_queue_run_outputs::stream.eq(&output.stream),
                        task_queue_run_outputs::content.eq(&output.content),
                        task_queue_run_outputs::total_bytes.eq(output.total_bytes),
                        task_queue_run_outputs::is_lossy.eq(output.is_lossy),
                    ))
                    .execute(conn)?;
            }
            was_written = true;
            Ok(Ended::Recorded)
        })
    }
}

/// The run that this very token has claimed: the closure runs again after a COMMIT whose answer was lost.
fn already_claimed(conn: &mut AnyConnection, claim: &Claim<'_>) -> StoreResult<Option<ClaimedRun>> {
    use task_queue_runs::dsl;
    let found: Option<i64> = dsl::task_queue_runs
        .filter(dsl::lease_expires_on.is_not_null())
        .filter(dsl::token.eq(claim.token))
        .select(dsl::id)
        .first(conn)
        .optional()?;
    found.map(|run_id| load_claimed(conn, run_id, claim.token)).transpose()
}

/// The head of the queue among the classes that can be executed here. One index probe a class: rows of other classes,
/// however many, are never walked.
fn first_claimable(conn: &mut AnyConnection, is_runnable: &dyn Fn(&str) -> bool) -> StoreResult<Option<Head>> {
    use super::schema::task_queue_runs::dsl::{claim_class, claim_order, id, task_queue_runs};
    let mut best: Option<Head> = None;
    let mut last_class = String::new();
    loop {
        let head: Option<(Option<String>, i64, i32)> = task_queue_runs
            .filter(claim_class.gt(&last_class))
            .order((claim_class, claim_order, id))
            .select((claim_class, id, claim_order))
            .first(conn)
            .optional()?;
        let Some((Some(class), run_id, order)) = head else { return Ok(best) };
        if is_runnable(&class)
            && best.as_ref().is_none_or(|(_, best_id, best_order)| (order, run_id) < (*best_order, *best_id))
        {
            best = Some((class.clone(), run_id, order));
        }
        last_class = class;
    }
}

/// Claims one run under the lock. `None` if it turned out to belong to no task; it has then ended as an error.
fn claim_run(conn: &mut AnyConnection, claim: &Claim<'_>, run_id: i64) -> StoreResult<Option<ClaimedRun>> {
    use task_queue_runs::dsl;
    let task: Option<(i64, String)> = task_queue_runs::table
        .inner_join(task_queue::table.on(task_queue::id.eq(dsl::task_queue_id)))
        .filter(dsl::id.eq(run_id))
        .select((task_queue::id, task_queue::last_status))
        .first(conn)
        .optional()?;
    let Some((task_id, task_status)) = task else {
        return end_orphan(conn, run_id).map(|()| None);
    };
    diesel::update(dsl::task_queue_runs)
        .filter(dsl::id.eq(run_id))
        .filter(dsl::status.eq(RunStatus::Scheduled.as_str()))
        .set((
            dsl::status.eq(RunStatus::Processing.as_str()),
            dsl::started_on.eq(db_now().nullable()),
            dsl::process_id.eq(claim.process_id),
            dsl::runner_id.eq(claim.runner_id.0),
            dsl::token.eq(claim.token),
            dsl::host.eq(claim.host),
            dsl::process_identity.eq(claim.process_identity),
            dsl::lease_expires_on.eq(db_now_plus(claim.lease_secs).nullable()),
            dsl::updated_on.eq(db_now()),
        ))
        .execute(conn)?;
    // A status that does not allow a start was written by a hand in the tables or a newer version: the run goes ahead,
    // the task's status is left alone (rule R9).
    let may_start = TaskStatus::parse(&task_status).and_then(|from| task_after(from, TaskEvent::Start, from));
    diesel::update(task_queue::table.filter(task_queue::id.eq(task_id)))
        .set((
            may_start.map(|status| task_queue::last_status.eq(status.as_str())),
            task_queue::current_run_id.eq(run_id),
            task_queue::updated_on.eq(db_now()),
        ))
        .execute(conn)?;
    load_claimed(conn, run_id, claim.token).map(Some)
}

fn load_claimed(conn: &mut AnyConnection, run_id: i64, token: &str) -> StoreResult<ClaimedRun> {
    type Row = (i64, String, i32, Option<Moment>, String, i32, Option<i32>, Moment);
    let (task_id, class, attempt, started_on, data, max_retries, task_timeout_secs, planned_on): Row =
        task_queue_runs::table
            .inner_join(task_queue::table.on(task_queue::id.eq(task_queue_runs::task_queue_id)))
            .filter(task_queue_runs::id.eq(run_id))
            .select((
                task_queue::id,
                task_queue_runs::task_class,
                task_queue_runs::attempt,
                task_queue_runs::started_on,
                task_queue::task_data,
                task_queue::max_retries,
                task_queue::timeout_secs,
                task_queue::scheduled_on,
            ))
            .first(conn)?;
    Ok(ClaimedRun {
        run_id: RunId(run_id),
        task_id: TaskId(task_id),
        class,
        data,
        token: token.to_owned(),
        attempt,
        max_retries,
        task_timeout_secs,
        planned_on: planned_on.into(),
        started_on: started_on.unwrap_or(planned_on).into(),
    })
}

/// A run whose task is gone can never be executed and would stand at the head of its class for ever.
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

fn create_one_run(
    conn: &mut AnyConnection,
    task_id: TaskId,
    class: &str,
    priority: i32,
    attempts: i32,
) -> StoreResult<()> {
    use task_queue_runs::dsl;
    let has_open: bool =
        diesel::select(diesel::dsl::exists(dsl::task_queue_runs.filter(dsl::open_task_id.eq(task_id.0))))
            .get_result(conn)?;
    if !has_open {
        diesel::insert_into(dsl::task_queue_runs)
            .values((
                dsl::task_queue_id.eq(task_id.0),
                dsl::task_class.eq(class),
                dsl::priority.eq(priority),
                dsl::attempt.eq(attempts.saturating_add(1)),
            ))
            .execute(conn)?;
    }
    Ok(())
}

fn end_run_if_processing(conn: &mut AnyConnection, run: &RunRef, end: &RunEnd, status: RunStatus) -> StoreResult<bool> {
    use task_queue_runs::dsl;
    let percents = if status == RunStatus::Success { Some(100) } else { end.percents_completed };
    let is_held_enough = (end.condition == EndCondition::Held).into_sql::<Nullable<Bool>>();
    let updated = diesel::update(dsl::task_queue_runs)
        .filter(dsl::id.eq(run.id.0))
        .filter(dsl::status.eq(RunStatus::Processing.as_str()))
        .filter(dsl::token.eq(&run.token))
        .filter(dsl::lease_expires_on.lt(db_now().nullable()).or(is_held_enough))
        .set((
            dsl::status.eq(status.as_str()),
            dsl::finished_on.eq(db_now().nullable()),
            dsl::lease_expires_on.eq(None::<Moment>),
            dsl::error_code.eq(&end.error_code),
            dsl::error_message.eq(&end.error_message),
            dsl::decision.eq(&end.decision),
            end.results.as_ref().map(|json| dsl::results.eq(json)),
            end.handler.as_ref().map(|(pid, _)| dsl::handler_process_id.eq(pid)),
            end.handler.as_ref().map(|(_, identity)| dsl::handler_identity.eq(identity)),
            end.message.as_ref().map(|message| dsl::progress_message.eq(message)),
            percents.map(|percents| dsl::percents_completed.eq(percents)),
            dsl::updated_on.eq(db_now()),
        ))
        .execute(conn)?;
    Ok(updated == 1)
}

/// Why a run could not be ended: the status that it has.
fn lost(conn: &mut AnyConnection, run: &RunRef) -> StoreResult<Ended> {
    use task_queue_runs::dsl;
    let status: Option<String> =
        dsl::task_queue_runs.filter(dsl::id.eq(run.id.0)).select(dsl::status).first(conn).optional()?;
    Ok(Ended::Lost { found: status.unwrap_or_else(|| "gone".to_owned()) })
}

/// Tells an end that this call has written before from one that somebody else wrote after its COMMIT had failed. A rescuer
/// shows the runner's token and may write the runner's status: what was decided tells them apart.
fn repeated_or_lost(conn: &mut AnyConnection, run: &RunRef, end: &RunEnd, status: RunStatus) -> StoreResult<Ended> {
    use task_queue_runs::dsl;
    let own = dsl::task_queue_runs
        .filter(dsl::id.eq(run.id.0))
        .filter(dsl::token.eq(&run.token))
        .filter(dsl::status.eq(status.as_str()))
        .filter(dsl::decision.eq(&end.decision))
        .filter(dsl::error_code.eq(&end.error_code));
    let is_own: bool = diesel::select(diesel::dsl::exists(own)).get_result(conn)?;
    if is_own { Ok(Ended::Recorded) } else { lost(conn, run) }
}

/// The scheme's OnAfterItemUpdate: what the end of a run means for its task.
fn aggregate_into_task(conn: &mut AnyConnection, run_id: RunId, end: &RunEnd) -> StoreResult<()> {
    use task_queue::dsl;
    type Row = (i64, String, i32, i32, i32);
    let task: Option<Row> = dsl::task_queue
        .inner_join(task_queue_runs::table.on(task_queue_runs::task_queue_id.eq(dsl::id)))
        .filter(task_queue_runs::id.eq(run_id.0))
        .select((dsl::id, dsl::last_status, dsl::failed_retries, dsl::max_retries, dsl::attempts))
        .first(conn)
        .optional()?;
    let Some((task_id, status, failed, max, attempts)) = task else { return Ok(()) };
    let event = aggregated(end.event);
    let before = match event {
        TaskEvent::Release => status_before(conn, task_id)?,
        _ => TaskStatus::Scheduled,
    };
    let next_status = TaskStatus::parse(&status).and_then(|from| task_after(from, event, before));
    let failed_after = failed_retries_after(event, failed, max, end.may_retry);
    let counts = event != TaskEvent::Release;
    let delay_secs = match event {
        TaskEvent::Fail | TaskEvent::TimeOut => {
            Some(end.delay_secs.unwrap_or_else(|| end.backoff.delay_secs(failed_after, task_id)))
        }
        TaskEvent::Release => end.delay_secs,
        TaskEvent::Start | TaskEvent::Succeed | TaskEvent::Cancel => None,
    };
    diesel::update(dsl::task_queue.filter(dsl::id.eq(task_id)))
        .set((
            next_status.map(|status| dsl::last_status.eq(status.as_str())),
            dsl::failed_retries.eq(failed_after),
            dsl::attempts.eq(attempts.saturating_add(i32::from(counts))),
            dsl::current_run_id.eq(None::<i64>),
            delay_secs.filter(|secs| *secs > 0).map(|secs| dsl::scheduled_on.eq(db_now_plus(secs))),
            dsl::updated_on.eq(db_now()),
        ))
        .execute(conn)?;
    if let Some((host, secs)) = &end.hold {
        let class: String = dsl::task_queue.filter(dsl::id.eq(task_id)).select(dsl::task_class).first(conn)?;
        backend::hold_class(conn, &ClassAtHost { class: &class, host }, &end.error_message, *secs)?;
    }
    Ok(())
}

/// The status that a task had before its open run was claimed: that of its last attempt that counted.
fn status_before(conn: &mut AnyConnection, task_id: i64) -> StoreResult<TaskStatus> {
    use task_queue_runs::dsl;
    let counted =
        [RunStatus::Success, RunStatus::Error, RunStatus::Timeout, RunStatus::Cancelled].map(RunStatus::as_str);
    let last: Option<String> = dsl::task_queue_runs
        .filter(dsl::task_queue_id.eq(task_id))
        .filter(dsl::status.eq_any(counted))
        .order((dsl::task_queue_id.desc(), dsl::id.desc()))
        .select(dsl::status)
        .first(conn)
        .optional()?;
    Ok(match last.as_deref().and_then(RunStatus::parse) {
        Some(RunStatus::Success) => TaskStatus::Success,
        Some(RunStatus::Error) => TaskStatus::Failed,
        Some(RunStatus::Timeout) => TaskStatus::Timeout,
        Some(RunStatus::Cancelled) => TaskStatus::Cancelled,
        _ => TaskStatus::Scheduled,
    })
}
