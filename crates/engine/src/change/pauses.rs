//! `pause`, `drain`, `stop` and `resume`: prevents claims, and makes runners exit.

use std::time::Duration;

use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use taskqueue_domain::limits::pause::{Pause, PauseMode, PauseScope, check_runner_name};
use taskqueue_domain::task::records::Runner;
use taskqueue_domain::task::task_class::check_class_pattern;
use taskqueue_domain::text::reason::parse_reason;
use taskqueue_store::NewPause;

/// An operator's order.
#[derive(Clone, Debug)]
pub struct PauseRequest {
    /// What it applies to.
    pub scope: PauseScope,
    /// Pause, drain or stop.
    pub mode: PauseMode,
    /// Why.
    pub reason: String,
    /// How long it lasts; `None` until it is resumed.
    pub duration: Option<Duration>,
}

/// Returns all pauses in effect.
///
/// # Errors
/// Returns an error if the database fails.
pub fn list(ctx: &mut Context) -> EngineResult<Vec<Pause>> {
    Ok(ctx.store.list_pauses()?)
}

/// Pauses, drains or stops something, and replaces an earlier order for it. Returns the live runners that it names.
///
/// # Errors
/// Returns [`EngineError::Input`], or an error if the database fails.
pub fn pause(ctx: &mut Context, request: PauseRequest) -> EngineResult<Vec<Runner>> {
    check(&request).map_err(EngineError::Input)?;
    let PauseRequest { scope, mode, reason, duration } = request;
    let reason = parse_reason(Some(&reason)).map_err(EngineError::Input)?.unwrap_or_default();
    let for_secs = duration.map(|duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX));
    let event = ctx.operator_event(
        mode.participle(),
        serde_json::json!({ "scope": scope.kind(), "name": scope.name(), "reason": reason, "for_secs": for_secs }),
    );
    let (author, host) = (ctx.me.user.clone(), ctx.me.host.clone());
    let new = NewPause { scope, mode, reason, for_secs, author, host };
    ctx.store.set_pause(&new, &event)?;
    fault_point!("pauses.set");
    let live = ctx.store.list_live_runners()?;
    Ok(live.into_iter().filter(|runner| new.scope.covers_runner(&runner.name)).collect())
}

/// Returns true if an order for runners names a claimant with runs in progress: such an order does not affect claimants.
///
/// # Errors
/// Returns an error if the database fails.
pub fn names_claimant(ctx: &mut Context, name: &str) -> EngineResult<bool> {
    Ok(ctx.store.is_claimant_at_work(name)?)
}

/// Ends a pause. Returns whether there was one.
///
/// # Errors
/// Returns an error if the database fails.
pub fn resume(ctx: &mut Context, scope: &PauseScope) -> EngineResult<bool> {
    let event = ctx.operator_event("resumed", details(scope));
    let is_ended = ctx.store.end_pause(scope, &event)?;
    fault_point!("pauses.ended");
    Ok(is_ended)
}

/// Removes the pauses that have expired.
///
/// # Errors
/// Returns an error if the database fails.
pub(crate) fn remove_ended(ctx: &mut Context) -> EngineResult<usize> {
    let me = &ctx.me;
    Ok(ctx.store.remove_ended_pauses(|scope| me.event("pause-over", details(scope)))?)
}

fn details(scope: &PauseScope) -> serde_json::Value {
    serde_json::json!({ "scope": scope.kind(), "name": scope.name() })
}

fn check(request: &PauseRequest) -> Result<(), String> {
    if request.duration.is_some_and(|duration| duration < Duration::from_secs(1)) {
        return Err("a pause must last one second or longer".to_owned());
    }
    match &request.scope {
        PauseScope::All => Ok(()),
        PauseScope::Runner(name) => check_runner_name(name),
        PauseScope::Class(pattern) => check_class_pattern(pattern)
            .map_err(|why| format!("\"{pattern}\" is neither a task class nor a pattern of classes: {why}")),
    }
}
