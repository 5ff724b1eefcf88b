//! `heartbeat`, `progress`, `message`, `resolve` and `release`: what claimants report about the runs that they hold. Each call
//! passes the token of the claim. A late call is refused, and a refused result is kept as an event (rule R3).

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::json;

use crate::announcing::announce::start_hook;
use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use crate::outbox::outcomes::{ClaimedIds, late_result, prepared};
use crate::running::execute::MAX_MESSAGE_CHARS;
use crate::running::handler_finish::storable;
use taskqueue_domain::run::decision::Decision;
use taskqueue_domain::run::ending::ReportedError;
use taskqueue_domain::run::message::{Message, check_message};
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::run::transition::{RunEvent, run_after};
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::meta::Meta;
use taskqueue_domain::task::records::{ClaimedRun, Run};
use taskqueue_domain::text::error_words::error_words;
use taskqueue_store::{EndCondition, EndResult, NewEvent, RunEnd, RunRef, RunReport};

/// ErrorCode of a run that its claimant rejected.
const REJECTED: &str = "rejected";
/// ErrorCode of a run that its claimant released at no cost.
const RELEASED: &str = "claimant-released";

/// A run and the token of its claim.
#[derive(Clone, Debug)]
pub struct Held {
    /// The run.
    pub run_id: RunId,
    /// The token of its claim.
    pub token: String,
}

/// What a claimant reports about a run in progress; every part is optional.
#[derive(Clone, Debug, Default)]
pub struct ProgressReport {
    /// 0 to 100.
    pub percents: Option<i32>,
    /// A line of text to display.
    pub message: Option<String>,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Renewed {
    /// The run.
    pub run_id: RunId,
    /// When the lease expires unless another heartbeat renews it.
    pub deadline: DateTime<Utc>,
    /// Whether the run was cancelled: the claimant should stop, and resolve it as not done.
    pub cancel_requested: bool,
    /// Who cancelled it, and why; empty if it was not cancelled.
    pub cancel_reason: String,
}

/// How a claimant's run ended.
#[derive(Clone, Debug)]
pub enum Resolution {
    /// It succeeded, with these results (JSON text).
    Success(Option<String>),
    /// It failed.
    Error(ReportedError),
    /// The claimant rejects the task for this reason, and is never offered it again.
    Rejection(String),
    /// The claimant shuts down and releases the run for this reason. No attempt is counted, and the claimant may claim the task
    /// again.
    Release(String),
}

/// A recorded resolution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Resolved {
    /// The run.
    pub run_id: RunId,
    /// Its task.
    pub task_id: TaskId,
    /// The current status of the run.
    pub status: String,
    /// Whether an earlier call had already recorded this resolution.
    pub was_recorded_before: bool,
}

/// Renews the lease of a run and saves what its claimant reports.
///
/// # Errors
/// Returns [`EngineError::Input`] if the percentage is not from 0 to 100, [`EngineError::NotHeld`] if the claimant does not hold the
/// run, or an error if there is no such run or the database fails.
pub fn renew(ctx: &mut Context, held: &Held, report: &ProgressReport) -> EngineResult<Renewed> {
    if report.percents.is_some_and(|percents| !(0..=100).contains(&percents)) {
        return Err(EngineError::Input("the percentage must be a whole number from 0 to 100".to_owned()));
    }
    let run = examine(ctx, held)?;
    let settings = ctx.store.settings()?;
    let task = ctx.store.get_task(run.task_id)?;
    let lease_secs = ctx.handlers.timeout_secs(run.class.known(), task.timeout_secs, &settings);
    let message = report.message.as_deref().map(|message| storable(message, 1_000));
    let saved = RunReport { percents_completed: report.percents, message: message.as_deref(), results: None };
    fault_point!("claimants.before_renew");
    let deadline = ctx.store.renew_outside(&held.reference(), &saved, lease_secs)?;
    // Read after the renewal, so that a cancel before it is not missed.
    let run = ctx.store.get_run(held.run_id)?;
    let Some(deadline) = deadline else { return Err(not_held(&run, held)) };
    let cancel_requested = run.cancel_requested_on.is_some();
    Ok(Renewed { run_id: held.run_id, deadline, cancel_requested, cancel_reason: run.cancel_reason })
}

/// Returns what [`renew`] would return, but changes nothing: the deadline stays.
///
/// # Errors
/// Returns the same errors as [`renew`].
pub fn check(ctx: &mut Context, held: &Held) -> EngineResult<Renewed> {
    let run = examine(ctx, held)?;
    let deadline = run.lease_expires_on.map_or_else(|| ctx.now(), Ok)?;
    let cancel_requested = run.cancel_requested_on.is_some();
    Ok(Renewed { run_id: held.run_id, deadline, cancel_requested, cancel_reason: run.cancel_reason })
}

/// Renews the lease of the run, and stores a message as an event that anyone may follow. The message comes last, so that a call
/// that is repeated after an error stores it only once, unless the answer to the commit was lost.
///
/// # Errors
/// Returns [`EngineError::Input`] if the message is invalid, otherwise the same errors as [`renew`].
pub fn emit(ctx: &mut Context, held: &Held, message: &Message) -> EngineResult<Renewed> {
    check_message(&message.name, &message.data).map_err(EngineError::Input)?;
    let renewed = renew(ctx, held, &ProgressReport::default())?;
    fault_point!("claimants.before_message");
    if !ctx.store.record_messages(&held.reference(), &message.clone().into())? {
        let found = ctx.store.get_run(held.run_id)?;
        return Err(not_held(&found, held));
    }
    fault_point!("claimants.message_kept");
    Ok(renewed)
}

/// Records how a claimant's run ended. A repeated call with the same result succeeds and changes nothing, because the answer to
/// the first one may have been lost.
///
/// # Errors
/// Returns [`EngineError::NotHeld`] if the claimant does not hold the run, or an error if there is no such run or the database
/// fails.
pub fn resolve(ctx: &mut Context, held: &Held, resolution: &Resolution) -> EngineResult<Resolved> {
    resolve_with(ctx, held, resolution, None)
}

/// Like [`resolve`], and adds to the metadata of the task.
///
/// # Errors
/// Returns the same errors as [`resolve`].
pub fn resolve_with(
    ctx: &mut Context,
    held: &Held,
    resolution: &Resolution,
    meta: Option<&Meta>,
) -> EngineResult<Resolved> {
    let run = examine_claim(ctx, held)?;
    let settings = ctx.store.settings()?;
    let has_retry_left = match resolution {
        Resolution::Rejection(_) => {
            let task = ctx.store.get_task(run.task_id)?;
            task.failed_retries.saturating_add(1) < settings.allowed_retries(task.max_retries)
        }
        _ => true,
    };
    let backoff = ctx.handlers.backoff(run.class.known(), &settings);
    let end = RunEnd { backoff, meta: meta.cloned(), ..end_of(ctx, &run, resolution, has_retry_left) };
    fault_point!("claimants.before_end");
    let ended = ctx.store.end_run(&held.reference(), &end)?;
    fault_point!("claimants.ended");
    ctx.notify_finished();
    let resolved = |status: &str, was_recorded_before| Resolved {
        run_id: run.id,
        task_id: run.task_id,
        status: status.to_owned(),
        was_recorded_before,
    };
    match ended {
        EndResult::Recorded | EndResult::GivenUp => {
            start_hook(ctx, run.task_id, run.id, &end);
            let status = run_after(RunStatus::Processing, end.event).map_or("", RunStatus::as_str);
            Ok(resolved(status, false))
        }
        EndResult::Cancelled => Ok(resolved(RunStatus::Cancelled.as_str(), false)),
        EndResult::Lost { .. } => {
            let found = ctx.store.get_run(held.run_id)?;
            if end.is_end_of(&found) {
                return Ok(resolved(&found.status.to_string(), true));
            }
            record_late_result(ctx, &found, &end)?;
            Err(not_held(&found, held))
        }
    }
}

/// Releases, at no cost, a run that could not be delivered to its claimant.
///
/// # Errors
/// Returns an error if the database fails; the next process on this host then releases the run.
pub fn give_back(ctx: &mut Context, run: &ClaimedRun) -> EngineResult<()> {
    let end = RunEnd::of(
        RunEvent::Release,
        "not-delivered",
        "the run could not be delivered to its claimant",
        "not-delivered: released",
    );
    match ctx.store.end_run(&RunRef { id: run.run_id, token: run.token.clone() }, &end) {
        Ok(_) => Ok(()),
        Err(error) => {
            prepared(ctx.spool.as_ref(), ctx.store.url().identity(), run, end)();
            Err(error.into())
        }
    }
}

impl Held {
    fn reference(&self) -> RunRef {
        RunRef { id: self.run_id, token: self.token.clone() }
    }
}

/// Returns the run if a claimant claimed it with this token, whatever its status is now.
fn examine_claim(ctx: &mut Context, held: &Held) -> EngineResult<Run> {
    let run = ctx.store.get_run(held.run_id)?;
    let is_theirs = run.claimant.is_some() && run.token.as_deref() == Some(held.token.as_str());
    if is_theirs { Ok(run) } else { Err(not_held(&run, held)) }
}

fn examine(ctx: &mut Context, held: &Held) -> EngineResult<Run> {
    let run = examine_claim(ctx, held)?;
    if run.status.is(RunStatus::Processing) { Ok(run) } else { Err(not_held(&run, held)) }
}

/// Returns the error for a caller that does not hold the run, with its current status.
fn not_held(run: &Run, held: &Held) -> EngineError {
    let status = &run.status;
    let why = if run.token.as_deref() != Some(held.token.as_str()) {
        format!("the token does not match its claim, and its status is {status}")
    } else if run.claimant.is_none() {
        "a runner of this program holds it; a handler reports with `taskqueue report progress` and `taskqueue report result`"
            .to_owned()
    } else if run.error_code.is_empty() {
        format!("its status is {status}")
    } else {
        format!("its status is {status} ({})", error_words(&run.error_code, &run.error_message))
    };
    EngineError::NotHeld { run: Box::new(run.clone()), why }
}

/// Returns how the run ends. `has_retry_left` counts this attempt as failed, and matters only for a rejection.
fn end_of(ctx: &Context, run: &Run, resolution: &Resolution, has_retry_left: bool) -> RunEnd {
    let claimant = run.claimant.clone().unwrap_or_default();
    let (decision, results) = match resolution {
        Resolution::Success(results) => {
            (Decision { rule: "its claimant succeeded".to_owned(), ..Decision::returned() }, results.clone())
        }
        Resolution::Error(error) => {
            let word = if error.retry.unwrap_or(true) { "retry" } else { "no_retry" };
            let rule = format!("its claimant reported an error: {word}");
            (Decision { rule, ..Decision::reported(error) }, None)
        }
        Resolution::Rejection(reason) => {
            let error = ReportedError {
                code: REJECTED.to_owned(),
                message: if reason.is_empty() { "its claimant rejected it".to_owned() } else { reason.clone() },
                retry: Some(true),
                delay_secs: Some(0),
            };
            let next = if has_retry_left { "retry at once, with others" } else { "no retry left" };
            let rule = format!("its claimant rejected it: {next}");
            (Decision { rule, ..Decision::reported(&error) }, None)
        }
        Resolution::Release(reason) => {
            let message = if reason.is_empty() { "its claimant released it" } else { reason };
            (Decision::released(RELEASED, message), None)
        }
    };
    let (kind, condition) = match resolution {
        Resolution::Rejection(_) => (REJECTED, EndCondition::Rejected),
        Resolution::Release(_) => ("released", EndCondition::Held),
        Resolution::Success(_) | Resolution::Error(_) => ("resolved", EndCondition::Held),
    };
    let details =
        json!({ "decision": decision.rule, "error_code": decision.error_code, "message": decision.error_message });
    let (code, message) = (storable(&decision.error_code, 190), storable(&decision.error_message, MAX_MESSAGE_CHARS));
    RunEnd {
        may_retry: decision.may_retry,
        delay_secs: decision.delay_secs,
        results,
        condition,
        notes: vec![NewEvent { actor: claimant, ..ctx.me.event_of_run(kind, run.task_id, run.id, details) }],
        ..RunEnd::of(decision.event, &code, &message, &decision.rule)
    }
}

fn record_late_result(ctx: &mut Context, found: &Run, end: &RunEnd) -> EngineResult<()> {
    let claimed = ClaimedIds { run_id: found.id, task_id: found.task_id };
    let event = late_result(&ctx.me, claimed, &found.status.to_string(), end);
    let actor = found.claimant.clone().unwrap_or_default();
    Ok(ctx.store.record_event_once(&NewEvent { actor, ..event })?)
}
