//! A run ends, exactly once, and its task with it.

use diesel::prelude::*;
use diesel::sql_types::{Bool, Nullable};
use serde::{Deserialize, Serialize};

use super::super::audit::{Origin, keep_run_transition};
use super::super::backend::{self, AnyConnection, ClassAtHost};
use super::super::dependencies::satisfy_dependants;
use super::super::events::{NewEvent, insert_event};
use super::super::leases::leases_count;
use super::super::notices::{NewNotice, insert_notice};
use super::super::rows::RunRow;
use super::super::runs::RunRef;
use super::super::schema::{task_queue, task_queue_run_outputs, task_queue_runs};
use super::super::sql::{Moment, db_now, db_now_plus};
use super::super::{Store, StoreResult};
use super::recur::{Author, follow_settled};
use super::reject::remember_rejection;
use crate::domain::backoff::Backoff;
use crate::domain::ids::{RunId, TaskId};
use crate::domain::notice::NoticeKind;
use crate::domain::records::{Run, RunOutput};
use crate::domain::status::{RunStatus, TaskStatus};
use crate::domain::transition::{
    RunEvent, TaskEvent, aggregated, crashes_after, failed_retries_after, run_after, task_after,
};

/// The length of the column Decision.
const MAX_DECISION_CHARS: usize = 190;

/// How a run ends, and what that means for its task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunEnd {
    /// What happens to the run.
    pub event: RunEvent,
    /// Whether the task is tried again while retries are left.
    pub may_retry: bool,
    /// Seconds until the next attempt; `None` leaves it to the backoff.
    pub delay_secs: Option<i64>,
    /// How long failed attempts wait, where the task itself does not say.
    pub backoff: Backoff,
    /// Set if the handler or its runner crashed.
    pub crash: Option<Crash>,
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

impl RunEnd {
    /// An end of which there is nothing more to say.
    #[must_use]
    pub fn of(event: RunEvent, code: &str, message: &str, decision: &str) -> Self {
        Self {
            event,
            may_retry: true,
            delay_secs: None,
            backoff: Backoff::Fixed(0),
            crash: None,
            error_code: code.to_owned(),
            error_message: message.to_owned(),
            decision: decision.to_owned(),
            handler: None,
            percents_completed: None,
            message: None,
            results: None,
            outputs: Vec::new(),
            hold: None,
            condition: EndCondition::Held,
            note: None,
        }
    }

    /// The same where somebody has asked for the end of the run: it did not succeed, and is not tried again. `None` for what
    /// stays as it is.
    fn as_cancelled(&self) -> Option<Self> {
        if matches!(self.event, RunEvent::Succeed | RunEvent::Cancel) {
            return None;
        }
        let decision = format!("cancelled; {}", self.decision).chars().take(MAX_DECISION_CHARS).collect();
        Some(Self { event: RunEvent::Cancel, crash: None, decision, ..self.clone() })
    }

    /// Whether this is how the run has ended.
    #[must_use]
    pub fn is_end_of(&self, run: &Run) -> bool {
        let is_written = |end: &Self| {
            run_after(RunStatus::Processing, end.event).is_some_and(|status| run.status.is(status))
                && run.decision == end.decision
                && run.error_code == end.error_code
        };
        is_written(self) || self.as_cancelled().as_ref().is_some_and(is_written)
    }
}

/// A crash, by which the task comes nearer to its quarantine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Crash {
    /// The number of crashes, without a success between them, that quarantines the task.
    pub limit: i32,
    /// Who notes the quarantine.
    pub actor: String,
    /// Where.
    pub host: String,
}

/// What must be true of a run that is ended, beyond its status and its token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndCondition {
    /// Nothing more.
    #[default]
    Held,
    /// Its lease is over: the runner may have renewed it since somebody looked. And leases count, which they do not before
    /// the server has been up for the time of one.
    LeaseOver {
        /// The time of a lease.
        lease_secs: i64,
    },
    /// Nothing more; and the claimant that holds it rejects its task, and is remembered.
    Rejected,
}

/// The answer to a write that ends a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It ended as asked.
    Recorded,
    /// It ended, but as cancelled: that was asked for before.
    Cancelled,
    /// Somebody else was first: the run has this status, or another token.
    Lost {
        /// The status that it has.
        found: String,
    },
}

impl Store {
    /// Ends a run and aggregates it into its task. The run must still be processing under this token (rule R3).
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn end_run(&mut self, run: &RunRef, end: &RunEnd) -> StoreResult<Ended> {
        if run_after(RunStatus::Processing, end.event).is_none() {
            return Ok(Ended::Lost { found: "no such end".to_owned() });
        }
        let cancelled = end.as_cancelled();
        let request = if cancelled.is_some() { CancelRequest::Missing } else { CancelRequest::Any };
        // Set by an attempt whose COMMIT came to nothing, or whose answer was lost: only then can a run that is over have
        // been ended by this very call.
        let mut was_written = false;
        let auditor = self.auditor()?;
        self.write_key(|conn| {
            backend::enter_both_tables(conn)?;
            let mut ended = Ended::Recorded;
            let mut end = end;
            if !end_run_if_processing(conn, run, end, request)? {
                match &cancelled {
                    Some(cancelled) if end_run_if_processing(conn, run, cancelled, CancelRequest::Made)? => {
                        (end, ended) = (cancelled, Ended::Cancelled);
                    }
                    _ => return if was_written { repeated_or_lost(conn, run, end) } else { lost(conn, run) },
                }
            }
            fault_point!("end.run_written");
            let task_id = aggregate_into_task(conn, run.id, end)?;
            if let Some((origin, task_id)) = auditor.as_ref().zip(task_id) {
                keep_end(conn, origin, (task_id, run.id), RunStatus::Processing, end)?;
            }
            fault_point!("end.task_written");
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
            if end.condition == EndCondition::Rejected {
                remember_rejection(conn, run.id)?;
            }
            was_written = true;
            fault_point!("end.before_commit");
            Ok(ended)
        })
    }
}

/// What must be true of the request to cancel a run, which may come at any moment: the statement that ends it decides.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CancelRequest {
    Any,
    Missing,
    Made,
}

fn end_run_if_processing(
    conn: &mut AnyConnection,
    run: &RunRef,
    end: &RunEnd,
    request: CancelRequest,
) -> StoreResult<bool> {
    use task_queue_runs::dsl;
    let Some(status) = run_after(RunStatus::Processing, end.event) else { return Ok(false) };
    let percents = if status == RunStatus::Success { Some(100) } else { end.percents_completed };
    if let EndCondition::LeaseOver { lease_secs } = end.condition
        && !leases_count(conn, lease_secs)?
    {
        return Ok(false);
    }
    let is_held_enough = (!matches!(end.condition, EndCondition::LeaseOver { .. })).into_sql::<Nullable<Bool>>();
    let updated = diesel::update(dsl::task_queue_runs)
        .filter(dsl::id.eq(run.id.0))
        .filter(dsl::status.eq(RunStatus::Processing.as_str()))
        .filter(dsl::token.eq(&run.token))
        .filter(dsl::lease_expires_on.lt(db_now().nullable()).or(is_held_enough))
        .filter(dsl::cancel_requested_on.is_null().or((request != CancelRequest::Missing).into_sql::<Bool>()))
        .filter(dsl::cancel_requested_on.is_not_null().or((request != CancelRequest::Made).into_sql::<Bool>()))
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
fn repeated_or_lost(conn: &mut AnyConnection, run: &RunRef, end: &RunEnd) -> StoreResult<Ended> {
    use task_queue_runs::dsl;
    let ours = dsl::task_queue_runs.filter(dsl::id.eq(run.id.0)).filter(dsl::token.eq(&run.token));
    let found: Option<Run> = ours.select(RunRow::as_select()).first(conn).optional()?.map(Run::from);
    match found {
        Some(found) if end.is_end_of(&found) => {
            let is_instead = found.status.is(RunStatus::Cancelled) && end.event != RunEvent::Cancel;
            Ok(if is_instead { Ended::Cancelled } else { Ended::Recorded })
        }
        _ => lost(conn, run),
    }
}

/// Keeps the end of a run that was in `from`.
pub(super) fn keep_end(
    conn: &mut AnyConnection,
    origin: &Origin,
    ids: (TaskId, RunId),
    from: RunStatus,
    end: &RunEnd,
) -> StoreResult<()> {
    let details = serde_json::json!({
        "status": run_after(from, end.event), "error_code": end.error_code, "decision": end.decision,
    });
    keep_run_transition(conn, origin, "run-ended", ids, details)
}

/// Ends a run that waits, and its task with it. Whether it still waited.
pub(super) fn end_waiting_run(
    conn: &mut AnyConnection,
    run_id: RunId,
    end: &RunEnd,
    auditor: Option<&Origin>,
) -> StoreResult<bool> {
    use task_queue_runs::dsl;
    let Some(status) = run_after(RunStatus::Scheduled, end.event) else { return Ok(false) };
    let ended = diesel::update(dsl::task_queue_runs)
        .filter(dsl::id.eq(run_id.0))
        .filter(dsl::status.eq(RunStatus::Scheduled.as_str()))
        .set((
            dsl::status.eq(status.as_str()),
            dsl::finished_on.eq(db_now().nullable()),
            dsl::error_code.eq(&end.error_code),
            dsl::error_message.eq(&end.error_message),
            dsl::decision.eq(&end.decision),
            dsl::updated_on.eq(db_now()),
        ))
        .execute(conn)?;
    if ended == 1 {
        let task_id = aggregate_into_task(conn, run_id, end)?;
        if let Some((origin, task_id)) = auditor.zip(task_id) {
            keep_end(conn, origin, (task_id, run_id), RunStatus::Scheduled, end)?;
        }
    }
    Ok(ended == 1)
}

/// The scheme's OnAfterItemUpdate: what the end of a run means for its task, whose id it returns.
fn aggregate_into_task(conn: &mut AnyConnection, run_id: RunId, end: &RunEnd) -> StoreResult<Option<TaskId>> {
    use task_queue::dsl;
    type Row = (i64, String, i32, i32, i32, i32, Option<String>, String, Option<String>, String);
    let task: Option<Row> = dsl::task_queue
        .inner_join(task_queue_runs::table.on(task_queue_runs::task_queue_id.eq(dsl::id)))
        .filter(task_queue_runs::id.eq(run_id.0))
        .select((
            dsl::id,
            dsl::last_status,
            dsl::failed_retries,
            dsl::max_retries,
            dsl::attempts,
            dsl::crashes,
            dsl::backoff,
            dsl::task_class,
            dsl::recurrence,
            task_queue_runs::host,
        ))
        .first(conn)
        .optional()?;
    let Some((task_id, status, failed, max, attempts, crashes, backoff, class, recurrence, host)) = task else {
        return Ok(None);
    };
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
            let own = backoff.and_then(|text| text.parse::<Backoff>().ok());
            let backoff = own.as_ref().unwrap_or(&end.backoff);
            Some(end.delay_secs.unwrap_or_else(|| backoff.delay_secs(failed_after, task_id)))
        }
        TaskEvent::Release => end.delay_secs,
        TaskEvent::Start | TaskEvent::Succeed | TaskEvent::Cancel | TaskEvent::Requeue => None,
    };
    let crashes_after = crashes_after(event, crashes, end.crash.is_some());
    let quarantine = end.crash.as_ref().filter(|crash| crashes_after >= crash.limit);
    diesel::update(dsl::task_queue.filter(dsl::id.eq(task_id)))
        .set((
            next_status.map(|status| dsl::last_status.eq(status.as_str())),
            dsl::failed_retries.eq(failed_after),
            dsl::attempts.eq(attempts.saturating_add(i32::from(counts))),
            dsl::current_run_id.eq(None::<i64>),
            dsl::crashes.eq(crashes_after),
            quarantine.map(|_| dsl::quarantined_on.eq(db_now().nullable())),
            delay_secs.filter(|secs| *secs > 0).map(|secs| dsl::scheduled_on.eq(db_now_plus(secs))),
            dsl::updated_on.eq(db_now()),
        ))
        .execute(conn)?;
    if next_status == Some(TaskStatus::Success) {
        satisfy_dependants(conn, task_id)?;
    }
    if let Some(crash) = quarantine {
        insert_event(conn, &quarantine_event(task_id, run_id, crash, crashes_after))?;
    }
    if let Some((host, secs)) = &end.hold {
        backend::hold_class(conn, &ClassAtHost { class: &class, host }, &end.error_message, *secs)?;
    }
    // Of one that somebody has settled in the tables, `create-runs` finds it out; a claim could not write what follows.
    if recurrence.is_some() && next_status.is_some() {
        // By nobody: the time has come.
        follow_settled(conn, TaskId(task_id), &Author { name: "", host: &host })?;
    }
    let is_exhausted = matches!(event, TaskEvent::Fail | TaskEvent::TimeOut) && failed_after >= max;
    if let Some(kind) = what_to_tell(quarantine.is_some(), is_exhausted, end.hold.is_some()) {
        let (error_code, error_message) = (end.error_code.clone(), end.error_message.clone());
        let task_id = TaskId(task_id);
        insert_notice(conn, &NewNotice { kind, task_id, run_id, class, host, error_code, error_message })?;
    }
    Ok(Some(TaskId(task_id)))
}

/// What somebody must know of an end; of several things the one that needs him most.
const fn what_to_tell(is_quarantined: bool, is_exhausted: bool, is_held: bool) -> Option<NoticeKind> {
    match (is_quarantined, is_exhausted, is_held) {
        (true, _, _) => Some(NoticeKind::Quarantined),
        (false, true, _) => Some(NoticeKind::Exhausted),
        (false, false, true) => Some(NoticeKind::Held),
        (false, false, false) => None,
    }
}

fn quarantine_event(task_id: i64, run_id: RunId, crash: &Crash, crashes: i32) -> NewEvent {
    NewEvent {
        kind: "quarantined",
        task_id: Some(TaskId(task_id)),
        run_id: Some(run_id),
        actor: crash.actor.clone(),
        host: crash.host.clone(),
        details: serde_json::json!({ "crashes": crashes, "limit": crash.limit }),
    }
}

/// The status that a task had before its open run was claimed: that of its last attempt that counted, if that failed. What
/// succeeded or was cancelled has a run only because somebody queued it again.
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
        Some(RunStatus::Error) => TaskStatus::Failed,
        Some(RunStatus::Timeout) => TaskStatus::Timeout,
        _ => TaskStatus::Scheduled,
    })
}
