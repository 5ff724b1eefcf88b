//! A run ends, exactly once, and its task with it.

use diesel::prelude::*;
use diesel::sql_types::{Bool, Nullable};
use serde::{Deserialize, Serialize};

use super::super::audit::{Origin, keep_run_transition};
use super::super::backend::{self, AnyConnection};
use super::super::events::{NewEvent, insert_event};
use super::super::leases::leases_count;
use super::super::outputs::put_outputs;
use super::super::rows::RunRow;
use super::super::runs::RunRef;
use super::super::schema::task_queue_runs;
use super::super::sql::{Moment, db_now};
use super::super::{Store, StoreResult};
use super::aggregate::{Aggregated, aggregate_into_task};
use super::reject::remember_rejection;
use crate::domain::backoff::Backoff;
use crate::domain::ids::{RunId, TaskId};
use crate::domain::records::{Run, RunOutput};
use crate::domain::status::RunStatus;
use crate::domain::transition::{RunEvent, run_after};

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
        let mut freed_key = None;
        let auditor = self.auditor()?;
        let ended = self.write_key(|conn| {
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
            let aggregated = aggregate_into_task(conn, run.id, end)?;
            if let Some((origin, aggregated)) = auditor.as_ref().zip(aggregated.as_ref()) {
                keep_end(conn, origin, (aggregated.task_id, run.id), RunStatus::Processing, end)?;
            }
            freed_key = aggregated.and_then(|aggregated| aggregated.freed_key);
            fault_point!("end.task_written");
            if let Some(event) = &end.note {
                insert_event(conn, event)?;
            }
            put_outputs(conn, run.id, &end.outputs)?;
            if end.condition == EndCondition::Rejected {
                remember_rejection(conn, run.id)?;
            }
            was_written = true;
            fault_point!("end.before_commit");
            Ok(ended)
        })?;
        if let Some(key) = freed_key {
            fault_point!("end.key_freed");
            // The run has ended, whatever comes of this: `create-runs` gives every free slot.
            let _ = self.pass_key_slot_on(&key);
        }
        Ok(ended)
    }

    /// What has become of an end, whoever has sent it: it was recorded, or recorded as a cancellation; or it is lost, for the run
    /// has another status, which is still `processing` where nobody has ended it.
    ///
    /// # Errors
    /// The database could not be asked.
    pub fn find_end(&mut self, run: &RunRef, end: &RunEnd) -> StoreResult<Ended> {
        self.read(|conn| repeated_or_lost(conn, run, end))
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

/// In place of the status of a run that was deleted.
const GONE: &str = "gone";

/// Why a run could not be ended: the status that it has.
fn lost(conn: &mut AnyConnection, run: &RunRef) -> StoreResult<Ended> {
    use task_queue_runs::dsl;
    let status: Option<String> =
        dsl::task_queue_runs.filter(dsl::id.eq(run.id.0)).select(dsl::status).first(conn).optional()?;
    Ok(Ended::Lost { found: status.unwrap_or_else(|| GONE.to_owned()) })
}

/// Tells an end that was written before from one that somebody else wrote after its COMMIT had failed. A rescuer shows the
/// runner's token and may write the runner's status: what was decided tells them apart.
pub(super) fn repeated_or_lost(conn: &mut AnyConnection, run: &RunRef, end: &RunEnd) -> StoreResult<Ended> {
    use task_queue_runs::dsl;
    // One look: between two of them somebody else could write this very end.
    let row = dsl::task_queue_runs.filter(dsl::id.eq(run.id.0)).select(RunRow::as_select()).first(conn).optional()?;
    Ok(match row.map(Run::from) {
        Some(found) if found.token.as_ref() == Some(&run.token) && end.is_end_of(&found) => {
            let is_instead = found.status.is(RunStatus::Cancelled) && end.event != RunEvent::Cancel;
            if is_instead { Ended::Cancelled } else { Ended::Recorded }
        }
        Some(found) => Ended::Lost { found: found.status.to_string() },
        None => Ended::Lost { found: GONE.to_owned() },
    })
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

/// Ends a run that waits, and its task with it. Whether it still waited. The slot of its key, if it had one, is free then.
pub(super) fn end_waiting_run(
    conn: &mut AnyConnection,
    run_id: RunId,
    end: &RunEnd,
    auditor: Option<&Origin>,
) -> StoreResult<bool> {
    let has_ended = end_waiting_row(conn, run_id, end)?;
    if has_ended {
        let aggregated = aggregate_into_task(conn, run_id, end)?;
        if let Some((origin, Aggregated { task_id, .. })) = auditor.zip(aggregated) {
            keep_end(conn, origin, (task_id, run_id), RunStatus::Scheduled, end)?;
        }
    }
    Ok(has_ended)
}

/// The same of the run alone: what that means for its task is the caller's matter.
pub(super) fn end_waiting_row(conn: &mut AnyConnection, run_id: RunId, end: &RunEnd) -> StoreResult<bool> {
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
    Ok(ended == 1)
}
