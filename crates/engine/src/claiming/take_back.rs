//! `release --force`: an operator takes a run from a claimant that has disappeared, before its deadline. The claimant can no
//! longer end it, and its process is asked to end if it is on this host. The task is due at once, and no attempt is counted.

use serde::Serialize;
use serde_json::json;

use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use crate::running::execute::MAX_MESSAGE_CHARS;
use crate::running::handler_finish::storable;
use crate::upkeep::rescue::end_processes_of_claim;
use taskqueue_domain::run::status::{RunStatus, Stored};
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::Run;
use taskqueue_domain::text::error_words::error_words;
use taskqueue_process::identities::claimant::EndAnswer;
use taskqueue_process::identities::identity::{Liveness, ProcessIdentity};
use taskqueue_store::{EndResult, NewEvent, NewStart, RunEnd, RunRef};

/// The ErrorCode of a run that an operator took from its claimant, and the kind of the event.
const TAKEN_BACK: &str = "taken-back";

/// The result of taking a run from its claimant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TakenBack {
    /// The run.
    pub run_id: RunId,
    /// Its task.
    pub task_id: TaskId,
    /// The claimant that had it.
    pub claimant: String,
    /// The current status of the run: `released`, or `cancelled` if that was requested before.
    pub status: String,
    /// Whether an earlier call had already recorded this.
    pub was_recorded_before: bool,
    /// How many live processes of the claimant and of the run were ended.
    pub ended_processes: usize,
    /// Why the process of the claimant may still be alive; `None` if it is not.
    pub not_ended: Option<String>,
}

/// The result for a run that should be taken from its claimant.
pub(crate) enum TakeBackOutcome {
    /// It was taken.
    Taken {
        /// How.
        taken: TakenBack,
        /// Whether the same transaction restarted its task.
        has_restarted: bool,
    },
    /// It had ended in another way; this is its current row.
    Ended(Box<Run>),
}

/// Takes a run in progress from its claimant, before or after its deadline, and stores the reason of the context. A repeated
/// call succeeds and changes nothing.
///
/// # Errors
/// Returns [`EngineError::NotTakenBack`] if no claimant has the run in progress. Returns [`EngineError::Os`] if a process that
/// the claimant started for the run could not be ended. Returns an error if there is no such run or the database fails.
pub fn take_back(ctx: &mut Context, run_id: RunId) -> EngineResult<TakenBack> {
    let run = ctx.store.get_run(run_id)?;
    match take(ctx, &run, None)? {
        TakeBackOutcome::Taken { taken, .. } => Ok(taken),
        TakeBackOutcome::Ended(found) => Err(not_taken(*found)),
    }
}

/// Like [`take_back`], for a run that was just read. With `restart`, its task starts from the beginning, after these seconds.
pub(crate) fn take(ctx: &mut Context, run: &Run, restart: Option<(&NewStart, i64)>) -> EngineResult<TakeBackOutcome> {
    let (restart, delay_secs) = restart.map(|(start, secs)| (start.clone(), secs)).unzip();
    let end = RunEnd { restart, delay_secs, ..end_of(ctx) };
    if end.is_end_of(run) && run.claimant.is_some() {
        return Ok(taken_before(run, true));
    }
    let (Some(claim), Some(token)) = (run.held_claim(), run.token.clone()) else {
        return Ok(TakeBackOutcome::Ended(Box::new(run.clone())));
    };
    // Before the task can be claimed again, as when a deadline passes.
    let (asked, of_run) = end_processes_of_claim(ctx, run, &token)
        .map_err(|source| EngineError::Os { what: "a process of the run could not be ended", source })?;
    let not_ended = why_not_ended(run, &asked);
    let ended_processes = of_run + usize::from(asked == EndAnswer::Ended);
    fault_point!("take_back.processes_ended");
    let details = json!({ "claimant": claim.claimant, "ended_processes": ended_processes });
    let event =
        NewEvent { task_id: Some(run.task_id), run_id: Some(run.id), ..ctx.operator_event(TAKEN_BACK, details) };
    let end = RunEnd { notes: vec![event.clone()], ..end };
    let ended = ctx.store.end_run(&RunRef { id: run.id, token }, &end)?;
    fault_point!("take_back.committed");
    ctx.notify_finished();
    let status = match &ended {
        EndResult::Recorded | EndResult::GivenUp => RunStatus::Released.as_str().to_owned(),
        EndResult::Cancelled => RunStatus::Cancelled.as_str().to_owned(),
        EndResult::Lost { .. } => return lost(ctx, run, &end, &event),
    };
    // A cancelled task is not restarted.
    let has_restarted = end.restart.is_some() && ended != EndResult::Cancelled;
    let taken = TakenBack { status, ended_processes, not_ended, ..answer(run, false) };
    Ok(TakeBackOutcome::Taken { taken, has_restarted })
}

/// Handles a run that ended before the operator's request was recorded. A claimant that is asked to end may release it at no
/// cost; that is the requested result, and the event records who requested it.
fn lost(ctx: &mut Context, run: &Run, end: &RunEnd, event: &NewEvent) -> EngineResult<TakeBackOutcome> {
    let found = ctx.store.get_run(run.id)?;
    if end.is_end_of(&found) {
        return Ok(taken_before(&found, true));
    }
    if found.status.is(RunStatus::Released) && found.token == run.token {
        ctx.store.record_event_once(event)?;
        return Ok(taken_before(&found, false));
    }
    Ok(TakeBackOutcome::Ended(Box::new(found)))
}

/// Returns the outcome for a run that another call has ended.
fn taken_before(run: &Run, was_recorded_before: bool) -> TakeBackOutcome {
    TakeBackOutcome::Taken { taken: answer(run, was_recorded_before), has_restarted: false }
}

fn answer(run: &Run, was_recorded_before: bool) -> TakenBack {
    TakenBack {
        run_id: run.id,
        task_id: run.task_id,
        claimant: run.claimant.clone().unwrap_or_default(),
        status: run.status.to_string(),
        was_recorded_before,
        ended_processes: 0,
        not_ended: None,
    }
}

fn end_of(ctx: &Context) -> RunEnd {
    let why = ctx.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let message = storable(&format!("taken from its claimant by {}{why}", ctx.me.user), MAX_MESSAGE_CHARS);
    RunEnd::of(RunEvent::Release, TAKEN_BACK, &message, "taken-back: released")
}

/// Returns why the process of the claimant may still be alive, if it may.
fn why_not_ended(run: &Run, asked: &EndAnswer) -> Option<String> {
    match (asked, run.process_identity.parse::<ProcessIdentity>()) {
        (EndAnswer::Ended, _) => None,
        (EndAnswer::Lives(why), _) => Some(why.clone()),
        (EndAnswer::Nobody, Ok(identity)) if identity.liveness() == Liveness::Dead => None,
        (EndAnswer::Nobody, Ok(identity)) => {
            Some(format!("its process {} on {} cannot be stopped from this host", identity.pid, run.host))
        }
        (EndAnswer::Nobody, Err(_)) => Some("it recorded no process when it claimed the run".to_owned()),
    }
}

/// Returns the error for a run that cannot be taken.
pub(crate) fn not_taken(run: Run) -> EngineError {
    let why = match &run.status {
        Stored::Known(RunStatus::Processing) => "a runner holds it, not a claimant".to_owned(),
        status if run.error_code.is_empty() => format!("its status is {status}"),
        status => format!("its status is {status} ({})", error_words(&run.error_code, &run.error_message)),
    };
    EngineError::NotTakenBack { run: Box::new(run), why }
}
