//! Ends a run exactly once, together with its task.

use diesel::prelude::*;
use diesel::sql_types::{Bool, Nullable};

use crate::backend;
use crate::base::connection::AnyConnection;
use crate::base::rows::RunRow;
use crate::base::schema::{task_queue_events, task_queue_runs};
use crate::base::sql::{SqlMoment, db_now};
use crate::journal::events::insert_event;
use crate::records::outputs::put_outputs;
use crate::records::runs::RunRef;
use crate::rules::leases::leases_count;
use crate::session::origin::Origin;
use crate::transitions::ending::aggregate::{Aggregated, aggregate_into_task};
use crate::transitions::ending::keep::{keep_as_classes_state, keep_results_as_stated};
use crate::transitions::ending::run_end::{EndCondition, EndResult, RunEnd};
use crate::transitions::reject::{hold_back, remember_rejection};
use crate::transitions::retry::complete_restart;
use crate::{Store, StoreResult};
use taskqueue_domain::run::attempt_outcome::AttemptOutcome;
use taskqueue_domain::run::retention::KeepOfClass;
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::run::transition::{RunEvent, run_after};
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::Run;

impl Store {
    /// Ends a run and aggregates it into its task. The run must still be in progress with this token (rule R3).
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn end_run(&mut self, run: &RunRef, end: &RunEnd) -> StoreResult<EndResult> {
        if run_after(RunStatus::Processing, end.event).is_none() {
            return Ok(EndResult::Lost { found: "no such end".to_owned() });
        }
        let cancelled = end.as_cancelled();
        let request = if cancelled.is_some() { CancelRequest::Missing } else { CancelRequest::Any };
        // Set by an attempt whose COMMIT failed, or whose answer was lost: only then can an ended run have been ended by this
        // call.
        let mut was_written = false;
        let mut freed_key = None;
        let auditor = self.auditor()?;
        let keep_of = self.keep_of.clone();
        let ended = self.write_key(|conn| {
            backend::enter_both_tables(conn)?;
            let mut ended = EndResult::Recorded;
            let mut end = end;
            if !end_run_if_processing(conn, run, end, request)? {
                match &cancelled {
                    Some(cancelled) if end_run_if_processing(conn, run, cancelled, CancelRequest::Made)? => {
                        (end, ended) = (cancelled, EndResult::Cancelled);
                    }
                    _ => return if was_written { repeated_or_lost(conn, run, end) } else { lost(conn, run) },
                }
            }
            fault_point!("end.run_written");
            let aggregated = aggregate_into_task(conn, run.id, end)?;
            if let Some((origin, aggregated)) = auditor.as_ref().zip(aggregated.as_ref()) {
                keep_end(conn, origin, (aggregated.task_id, run.id), RunStatus::Processing, end, aggregated.outcome)?;
            }
            if aggregated.as_ref().is_some_and(|aggregated| aggregated.outcome == AttemptOutcome::Failed) {
                ended = EndResult::GivenUp;
            }
            if let Some(aggregated) = &aggregated {
                keep_as_stated(conn, keep_of.as_ref(), run.id, aggregated)?;
            }
            let task = aggregated.as_ref().map(|aggregated| aggregated.task_id);
            freed_key = aggregated.and_then(|aggregated| aggregated.freed_key);
            fault_point!("end.task_written");
            for event in &end.notes {
                insert_event(conn, event)?;
            }
            if let Some((start, task)) = end.new_start().zip(task) {
                complete_restart(conn, task, end.delay_secs.unwrap_or(0), start)?;
            }
            put_outputs(conn, run.id, &end.outputs)?;
            if end.condition == EndCondition::Rejected {
                remember_rejection(conn, run.id)?;
            }
            if let Some(lateness) = end.loss.as_ref().and_then(|loss| loss.lateness) {
                hold_back(conn, run.id, lateness)?;
            }
            was_written = true;
            fault_point!("end.before_commit");
            Ok(ended)
        })?;
        if let Some(key) = freed_key {
            fault_point!("end.key_freed");
            // Errors are ignored: the run has ended, and `create-runs` assigns free slots.
            let _ = self.pass_key_slot_on(&key);
        }
        Ok(ended)
    }

    /// Returns the stored result of this end, whichever process sent it. Returns [`EndResult::Lost`] with the current status if
    /// the run is still `processing` or ended in another way.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn find_end(&mut self, run: &RunRef, end: &RunEnd) -> StoreResult<EndResult> {
        self.read(|conn| repeated_or_lost(conn, run, end))
    }
}

fn keep_as_stated(
    conn: &mut AnyConnection,
    keep_of: Option<&KeepOfClass>,
    run_id: RunId,
    aggregated: &Aggregated,
) -> StoreResult<()> {
    keep_as_classes_state(conn, keep_of, &[aggregated.task_id.0])?;
    if !aggregated.keeps_results && keep_of.is_none() {
        return Ok(());
    }
    keep_results_as_stated(conn, keep_of, &[run_id.0])
}

/// What an end requires of the cancellation request of its run. The request may arrive at any moment, so the statement that ends
/// the run checks it.
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
    if let EndCondition::LeaseOver { lease_secs } | EndCondition::LeaseIs { lease_secs, .. } = end.condition
        && !leases_count(conn, lease_secs)?
    {
        return Ok(false);
    }
    let is_held_enough = (!matches!(end.condition, EndCondition::LeaseOver { .. })).into_sql::<Nullable<Bool>>();
    let lease = match end.condition {
        EndCondition::LeaseIs { lease, .. } => Some(SqlMoment::from(lease)),
        _ => None,
    };
    let may_have_any_lease = lease.is_none().into_sql::<Nullable<Bool>>();
    let updated = diesel::update(dsl::task_queue_runs)
        .filter(dsl::id.eq(run.id.0))
        .filter(dsl::status.eq(RunStatus::Processing.as_str()))
        .filter(dsl::token.eq(&run.token))
        .filter(dsl::lease_expires_on.lt(db_now().nullable()).or(is_held_enough))
        .filter(dsl::cancel_requested_on.is_null().or((request != CancelRequest::Missing).into_sql::<Bool>()))
        .filter(dsl::cancel_requested_on.is_not_null().or((request != CancelRequest::Made).into_sql::<Bool>()))
        .filter(dsl::lease_expires_on.eq(lease).or(may_have_any_lease))
        .set((
            dsl::status.eq(status.as_str()),
            dsl::finished_on.eq(db_now().nullable()),
            dsl::lease_expires_on.eq(None::<SqlMoment>),
            dsl::error_code.eq(&end.error_code),
            dsl::error_message.eq(&end.error_message),
            dsl::decision.eq(&end.decision),
            end.results.as_ref().map(|json| dsl::results.eq(json)),
            end.handler.as_ref().map(|(pid, _)| dsl::handler_process_id.eq(pid)),
            end.handler.as_ref().map(|(_, identity)| dsl::handler_identity.eq(identity)),
            end.usage
                .map(|usage| (dsl::cpu_msecs.eq(usage.cpu_msecs), dsl::peak_memory_bytes.eq(usage.peak_memory_bytes))),
            end.message.as_ref().map(|message| dsl::progress_message.eq(message)),
            percents.map(|percents| dsl::percents_completed.eq(percents)),
            dsl::updated_on.eq(db_now()),
        ))
        .execute(conn)?;
    Ok(updated == 1)
}

/// Replaces the status of a run that was deleted.
const GONE: &str = "gone";

/// Returns why a run could not be ended: its status.
fn lost(conn: &mut AnyConnection, run: &RunRef) -> StoreResult<EndResult> {
    use task_queue_runs::dsl;
    let status: Option<String> =
        dsl::task_queue_runs.filter(dsl::id.eq(run.id.0)).select(dsl::status).first(conn).optional()?;
    Ok(EndResult::Lost { found: status.unwrap_or_else(|| GONE.to_owned()) })
}

/// Checks whether an earlier attempt wrote the stored end, or another process wrote it after the COMMIT had failed. A rescuer
/// uses the runner's token and may write the same status: the decision distinguishes them.
pub(in crate::transitions) fn repeated_or_lost(
    conn: &mut AnyConnection,
    run: &RunRef,
    end: &RunEnd,
) -> StoreResult<EndResult> {
    use task_queue_runs::dsl;
    // One query: between two queries, another process could write this end.
    let row = dsl::task_queue_runs.filter(dsl::id.eq(run.id.0)).select(RunRow::as_select()).first(conn).optional()?;
    Ok(match row.map(Run::from) {
        Some(found) if found.token.as_ref() == Some(&run.token) && end.is_end_of(&found) => {
            let is_instead = found.status.is(RunStatus::Cancelled) && end.event != RunEvent::Cancel;
            match is_instead {
                true => EndResult::Cancelled,
                false if is_given_up(conn, &found)? => EndResult::GivenUp,
                false => EndResult::Recorded,
            }
        }
        Some(found) => EndResult::Lost { found: found.status.to_string() },
        None => EndResult::Lost { found: GONE.to_owned() },
    })
}

/// Returns true if the event of this run reports that its task is not retried.
fn is_given_up(conn: &mut AnyConnection, run: &Run) -> StoreResult<bool> {
    use task_queue_events::dsl;
    let failed = dsl::task_queue_events
        .filter(dsl::task_queue_id.eq(run.task_id.0))
        .filter(dsl::run_id.eq(run.id.0))
        .filter(dsl::kind.eq(AttemptOutcome::Failed.as_str()));
    Ok(diesel::select(diesel::dsl::exists(failed)).get_result(conn)?)
}

/// Records the end of a run that was in `from`.
pub(in crate::transitions) fn keep_end(
    conn: &mut AnyConnection,
    origin: &Origin,
    ids: (TaskId, RunId),
    from: RunStatus,
    end: &RunEnd,
    outcome: AttemptOutcome,
) -> StoreResult<()> {
    let details = serde_json::json!({
        "status": run_after(from, end.event), "error_code": end.error_code, "decision": end.decision,
        "outcome": outcome.as_str(),
    });
    insert_event(conn, &origin.event("run-ended", Some(ids.0), Some(ids.1), details))
}

/// Ends a waiting run, and its task with it. Returns true if it was still waiting. This frees the slot of its key, if it had one.
pub(in crate::transitions) fn end_waiting_run(
    conn: &mut AnyConnection,
    run_id: RunId,
    end: &RunEnd,
    auditor: Option<&Origin>,
) -> StoreResult<bool> {
    let has_ended = end_waiting_row(conn, run_id, end)?;
    if has_ended {
        let aggregated = aggregate_into_task(conn, run_id, end)?;
        if let Some((origin, aggregated)) = auditor.zip(aggregated) {
            keep_end(conn, origin, (aggregated.task_id, run_id), RunStatus::Scheduled, end, aggregated.outcome)?;
        }
    }
    Ok(has_ended)
}

/// Same as [`end_waiting_run`], for the run only: the caller handles its task.
pub(in crate::transitions) fn end_waiting_row(
    conn: &mut AnyConnection,
    run_id: RunId,
    end: &RunEnd,
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
    Ok(ended == 1)
}
