//! `limit`: limits the runs of a class or with a common key that are in progress at once, and the starts of a class within a
//! period.

use serde::Serialize;

use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use taskqueue_domain::limits::limit::{ClassLimit, KeyLimit, MAX_KEY_RUNNING, MAX_RUNNING};
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_domain::task::unique::check_key;

/// The limits of a class, or the limit of a key, and their current use.
#[derive(Clone, Debug, Serialize)]
pub struct LimitLine<L = ClassLimit> {
    /// The limits.
    #[serde(flatten)]
    pub limit: L,
    /// Runs of the class or with the key in progress.
    pub running: i64,
}

/// Returns the limits of all classes, sorted by class.
///
/// # Errors
/// Returns an error if the database fails.
pub fn list(ctx: &mut Context) -> EngineResult<Vec<LimitLine>> {
    let mut lines = Vec::new();
    for limit in ctx.store.list_class_limits()? {
        let running = ctx.store.count_running(&limit.class)?;
        lines.push(LimitLine { limit, running });
    }
    Ok(lines)
}

/// Sets the limits of a class. A `None` in `limit` removes that limit.
///
/// # Errors
/// Returns [`EngineError::Input`], or an error if the database fails.
pub fn set(ctx: &mut Context, limit: &ClassLimit) -> EngineResult<()> {
    limit.class.parse::<TaskClass>().map_err(EngineError::Input)?;
    if limit.max_running.is_none() && limit.rate.is_none() {
        return Err(EngineError::Input("no limit was given".to_owned()));
    }
    limit.max_running.map_or(Ok(()), |max| check_max_running(max, MAX_RUNNING))?;
    let event = ctx.operator_event("limit-set", serde_json::json!(limit));
    ctx.store.set_class_limit(limit, &event)?;
    fault_point!("limits.set");
    Ok(())
}

/// Removes the limits of a class. Returns whether it had any.
///
/// # Errors
/// Returns an error if the database fails.
pub fn remove(ctx: &mut Context, class: &str) -> EngineResult<bool> {
    let event = ctx.operator_event("limit-removed", serde_json::json!({ "class": class }));
    let is_removed = ctx.store.remove_class_limit(class, &event)?;
    fault_point!("limits.removed");
    Ok(is_removed)
}

/// Returns the limits of all keys that have one, sorted by key.
///
/// # Errors
/// Returns an error if the database fails.
pub fn list_keys(ctx: &mut Context) -> EngineResult<Vec<LimitLine<KeyLimit>>> {
    let mut lines = Vec::new();
    for limit in ctx.store.list_key_limits()? {
        let running = ctx.store.use_of_key(&limit.key)?.running;
        lines.push(LimitLine { limit, running });
    }
    Ok(lines)
}

/// Sets the limit of a key.
///
/// # Errors
/// Returns [`EngineError::Input`], or an error if the database fails.
pub fn set_key(ctx: &mut Context, limit: &KeyLimit) -> EngineResult<()> {
    check_key("limit key", &limit.key).map_err(EngineError::Input)?;
    check_max_running(limit.max_running, MAX_KEY_RUNNING)?;
    let event = ctx.operator_event("limit-set", serde_json::json!(limit));
    ctx.store.set_key_limit(limit, &event)?;
    fault_point!("limits.key_set");
    Ok(())
}

/// Removes the limit of a key, which restores the default of one run at a time. Returns whether it had one.
///
/// # Errors
/// Returns an error if the database fails.
pub fn remove_key(ctx: &mut Context, key: &str) -> EngineResult<bool> {
    let event = ctx.operator_event("limit-removed", serde_json::json!({ "key": key }));
    let is_removed = ctx.store.remove_key_limit(key, &event)?;
    fault_point!("limits.key_removed");
    Ok(is_removed)
}

fn check_max_running(max: i32, most: i32) -> EngineResult<()> {
    if (1..=most).contains(&max) {
        return Ok(());
    }
    Err(EngineError::Input(format!("the limit must be 1 to {most} runs at once; to run none, pause the class")))
}
