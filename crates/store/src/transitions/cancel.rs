//! Cancels tasks: waiting ones at once, together with their waiting runs; for tasks in progress, the runner or claimant is asked
//! to end them.

use diesel::prelude::*;

use super::ending::end::end_waiting_run;
use super::ending::keep::keep_as_classes_state;
use super::ending::run_end::RunEnd;
use super::{enter_tasks, hold_idle};
use crate::backend;
use crate::base::cells::ShownText;
use crate::base::connection::AnyConnection;
use crate::base::schema::{task_queue, task_queue_runs};
use crate::base::sql::db_now;
use crate::journal::events::{NewEvent, insert_event};
use crate::records::outputs::is_followed;
use crate::rules::dependencies::satisfy_dependants;
use crate::session::origin::Origin;
use crate::{Store, StoreError, StoreResult};
use taskqueue_domain::run::status::{RunStatus, TaskStatus};
use taskqueue_domain::run::transition::{RunEvent, TaskEvent, task_after};
use taskqueue_domain::task::ids::{RunId, TaskId};

/// How often the state of a task may change between the check and the write.
const LOOKS: usize = 20;
/// The states of the newest task of a schedule that has not finished.
pub(super) const UNFINISHED_HEADS: [&str; 2] = ["open", "waiting"];

/// The answer to a cancellation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelAnswer {
    /// It is cancelled.
    Cancelled,
    /// Its run is in progress there; it was asked to end.
    Requested {
        /// The run.
        run_id: RunId,
        /// The host of the runner or claimant that processes it; empty if unknown.
        host: String,
        /// The claimant that processes it; `None` if it is a runner.
        claimant: Option<String>,
    },
    /// It has this status and cannot be cancelled.
    Refused {
        /// LastStatus
        status: String,
    },
    /// The task does not exist.
    NoSuchTask,
}

/// What is requested of a run in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRequest {
    /// The run.
    pub run_id: RunId,
    /// Why it must end; `None` if it need not.
    pub cancel_reason: Option<String>,
    /// Whether its output is being read.
    pub is_followed: bool,
}

/// The open run of a task, as it was read.
pub(super) struct SeenRun {
    run_id: i64,
    status: String,
    host: String,
    claimant: Option<String>,
}

impl Store {
    /// Cancels these tasks, in one transaction, with one answer for each. Records `event` for each task that was cancelled or
    /// asked to end; its kind is `cancelled` or `cancel-requested`.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn cancel_tasks(&mut self, ids: &[TaskId], reason: &str, event: &NewEvent) -> StoreResult<Vec<CancelAnswer>> {
        let auditor = self.auditor()?;
        let keep_of = self.keep_of.clone();
        let answers = self.write_key_once(|conn| {
            enter_tasks(conn, ids)?;
            let cancel = |id: &TaskId| cancel_task(conn, *id, reason, event, auditor.as_ref(), Cancelling::AnyTask);
            let answers = ids.iter().map(cancel).collect::<StoreResult<Vec<_>>>()?;
            let cancelled = ids.iter().zip(&answers).filter(|(_, answer)| **answer == CancelAnswer::Cancelled);
            keep_as_classes_state(conn, keep_of.as_ref(), &cancelled.map(|(id, _)| id.0).collect::<Vec<_>>())?;
            fault_point!("cancel.before_commit");
            Ok(answers)
        })?;
        self.pass_on_slots_of(ids);
        Ok(answers)
    }

    /// Returns what is requested of these runs; those of which nothing is requested are left out.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_run_requests(&mut self, runs: &[RunId]) -> StoreResult<Vec<RunRequest>> {
        use task_queue_runs::dsl;
        let ids: Vec<i64> = runs.iter().map(|run| run.0).collect();
        let rows: Vec<(i64, bool, ShownText, Option<bool>)> = self.read(|conn| {
            Ok(dsl::task_queue_runs
                .filter(dsl::id.eq_any(&ids))
                .filter(dsl::cancel_requested_on.is_not_null().or(is_followed()))
                .select((dsl::id, dsl::cancel_requested_on.is_not_null(), dsl::cancel_reason, is_followed()))
                .load(conn)?)
        })?;
        let request = |(run_id, is_cancelled, reason, followed): (i64, bool, ShownText, Option<bool>)| RunRequest {
            run_id: RunId(run_id),
            cancel_reason: is_cancelled.then_some(reason.0),
            is_followed: followed == Some(true),
        };
        Ok(rows.into_iter().map(request).collect())
    }
}

/// Which tasks may be cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cancelling {
    /// Any task.
    AnyTask,
    /// Only the newest task of a schedule, if it has not finished: it may end between the check and the write.
    UnfinishedHead,
}

/// Cancels one task. Each write compares with the state that was read: a claim or an end in between is found by the next read.
pub(super) fn cancel_task(
    conn: &mut AnyConnection,
    id: TaskId,
    reason: &str,
    event: &NewEvent,
    auditor: Option<&Origin>,
    cancelling: Cancelling,
) -> StoreResult<CancelAnswer> {
    use task_queue::dsl;
    for _ in 0..LOOKS {
        let status: Option<String> =
            dsl::task_queue.filter(dsl::id.eq(id.0)).select(dsl::last_status).first(conn).optional()?;
        let Some(status) = status else { return Ok(CancelAnswer::NoSuchTask) };
        let run = open_run(conn, id)?;
        let answer = match &run {
            Some(run) if run.status == RunStatus::Processing.as_str() => request(conn, run, reason, event, id)?,
            Some(run) => cancel_waiting_run(conn, run.run_id, reason, auditor)?,
            None => match cancelled_from(&status) {
                Some(to) => cancel_idle_task(conn, id, &status, to, cancelling)?,
                None => return Ok(CancelAnswer::Refused { status }),
            },
        };
        match answer {
            Some(CancelAnswer::Cancelled) => {
                let run_id = run.map(|run| RunId(run.run_id));
                insert_event(conn, &NewEvent { kind: "cancelled", task_id: Some(id), run_id, ..event.clone() })?;
                return Ok(CancelAnswer::Cancelled);
            }
            Some(answer) => return Ok(answer),
            None => {}
        }
    }
    Err(StoreError::Busy(format!("task {id} changed each time it was read")))
}

fn cancelled_from(status: &str) -> Option<TaskStatus> {
    TaskStatus::parse(status).and_then(|from| task_after(from, TaskEvent::Cancel, from))
}

pub(super) fn open_run(conn: &mut AnyConnection, id: TaskId) -> StoreResult<Option<SeenRun>> {
    use task_queue_runs::dsl;
    let found: Option<(i64, String, ShownText, Option<ShownText>)> = dsl::task_queue_runs
        .filter(dsl::open_task_id.eq(id.0))
        .select((dsl::id, dsl::status, dsl::host, dsl::claimant))
        .first(conn)
        .optional()?;
    Ok(found.map(|(run_id, status, host, by)| SeenRun { run_id, status, host: host.0, claimant: by.map(|by| by.0) }))
}

/// Asks the runner or claimant of the run to end it. Returns `None` if the run is no longer in progress. The first request is
/// kept.
fn request(
    conn: &mut AnyConnection,
    run: &SeenRun,
    reason: &str,
    event: &NewEvent,
    id: TaskId,
) -> StoreResult<Option<CancelAnswer>> {
    use task_queue_runs::dsl;
    let (host, claimant) = (run.host.clone(), run.claimant.clone());
    let answer = CancelAnswer::Requested { run_id: RunId(run.run_id), host, claimant };
    let processing =
        || dsl::task_queue_runs.filter(dsl::id.eq(run.run_id)).filter(dsl::status.eq(RunStatus::Processing.as_str()));
    let requested = diesel::update(processing())
        .filter(dsl::cancel_requested_on.is_null())
        // UpdatedOn is not changed: the run has not reported anything, so a silent run stays silent.
        .set((dsl::cancel_requested_on.eq(db_now().nullable()), dsl::cancel_reason.eq(reason)))
        .execute(conn)?;
    if requested == 1 {
        let run_id = Some(RunId(run.run_id));
        insert_event(conn, &NewEvent { kind: "cancel-requested", task_id: Some(id), run_id, ..event.clone() })?;
        backend::notify(conn, backend::CANCEL_CHANNEL, &run.run_id.to_string())?;
        return Ok(Some(answer));
    }
    let was_requested: bool =
        diesel::select(diesel::dsl::exists(processing().filter(dsl::cancel_requested_on.is_not_null())))
            .get_result(conn)?;
    Ok(was_requested.then_some(answer))
}

fn cancel_waiting_run(
    conn: &mut AnyConnection,
    run_id: i64,
    reason: &str,
    auditor: Option<&Origin>,
) -> StoreResult<Option<CancelAnswer>> {
    let end = RunEnd::of(RunEvent::Cancel, "cancelled", reason, "cancelled before it was claimed");
    let has_ended = end_waiting_run(conn, RunId(run_id), &end, auditor)?;
    Ok(has_ended.then_some(CancelAnswer::Cancelled))
}

fn cancel_idle_task(
    conn: &mut AnyConnection,
    id: TaskId,
    from: &str,
    to: TaskStatus,
    cancelling: Cancelling,
) -> StoreResult<Option<CancelAnswer>> {
    use task_queue::dsl;
    if !hold_idle(conn, id)? {
        return Ok(None);
    }
    // Its row is locked now.
    if cancelling == Cancelling::UnfinishedHead && !is_unfinished_head(conn, id)? {
        return Ok(Some(CancelAnswer::Refused { status: from.to_owned() }));
    }
    let cancelled = diesel::update(dsl::task_queue.filter(dsl::id.eq(id.0)))
        .filter(dsl::last_status.eq(from))
        .filter(dsl::current_run_id.is_null())
        .set((dsl::last_status.eq(to.as_str()), dsl::class_keep_secs.eq(None::<i32>), dsl::updated_on.eq(db_now())))
        .execute(conn)?;
    if cancelled == 0 {
        return Ok(None);
    }
    satisfy_dependants(conn, id.0, false)?;
    Ok(Some(CancelAnswer::Cancelled))
}

fn is_unfinished_head(conn: &mut AnyConnection, id: TaskId) -> StoreResult<bool> {
    use task_queue::dsl;
    let head: Option<Option<String>> =
        dsl::task_queue.filter(dsl::id.eq(id.0)).select(dsl::schedule_head).first(conn).optional()?;
    Ok(head.flatten().is_some_and(|head| UNFINISHED_HEADS.contains(&head.as_str())))
}
