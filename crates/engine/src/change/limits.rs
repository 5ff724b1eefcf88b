//! `limits`: how many runs of a class, or with a key in common, may be processed at once, and how many of a class may start
//! in a time.

use serde::Serialize;

use crate::{Context, EngineError, EngineResult};
use taskqueue_domain::run::limits::{ClassLimit, KeyLimit, MAX_KEY_RUNNING, MAX_RUNNING};
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_domain::task::unique::check_key;

/// The limits of a class, and how far they are used.
#[derive(Clone, Debug, Serialize)]
pub struct LimitLine {
    /// The limits.
    #[serde(flatten)]
    pub limit: ClassLimit,
    /// Runs of the class that are being processed.
    pub running: i64,
}

/// The limit of a key, and how far it is used.
#[derive(Clone, Debug, Serialize)]
pub struct KeyLimitLine {
    /// The limit.
    #[serde(flatten)]
    pub limit: KeyLimit,
    /// Runs with this key that are being processed.
    pub running: i64,
}

/// The limits of all classes, by class.
///
/// # Errors
/// The database's.
pub fn list(ctx: &mut Context) -> EngineResult<Vec<LimitLine>> {
    let mut lines = Vec::new();
    for limit in ctx.store.list_class_limits()? {
        let running = ctx.store.count_running(&limit.class)?;
        lines.push(LimitLine { limit, running });
    }
    Ok(lines)
}

/// Sets the limits of a class. What is `None` in `limit` has no limit from now on.
///
/// # Errors
/// [`EngineError::Input`], or the database's.
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

/// Removes the limits of a class. Whether it had any.
///
/// # Errors
/// The database's.
pub fn remove(ctx: &mut Context, class: &str) -> EngineResult<bool> {
    let event = ctx.operator_event("limit-removed", serde_json::json!({ "class": class }));
    let is_removed = ctx.store.remove_class_limit(class, &event)?;
    fault_point!("limits.removed");
    Ok(is_removed)
}

/// The limits of all keys that have one, by key.
///
/// # Errors
/// The database's.
pub fn list_keys(ctx: &mut Context) -> EngineResult<Vec<KeyLimitLine>> {
    let mut lines = Vec::new();
    for limit in ctx.store.list_key_limits()? {
        let running = ctx.store.use_of_key(&limit.key)?.running;
        lines.push(KeyLimitLine { limit, running });
    }
    Ok(lines)
}

/// Sets the limit of a key.
///
/// # Errors
/// [`EngineError::Input`], or the database's.
pub fn set_key(ctx: &mut Context, limit: &KeyLimit) -> EngineResult<()> {
    check_key("limit key", &limit.key).map_err(EngineError::Input)?;
    check_max_running(limit.max_running, MAX_KEY_RUNNING)?;
    let event = ctx.operator_event("limit-set", serde_json::json!(limit));
    ctx.store.set_key_limit(limit, &event)?;
    fault_point!("limits.key_set");
    Ok(())
}

/// Removes the limit of a key: one at a time from now on. Whether it had one.
///
/// # Errors
/// The database's.
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
    Err(EngineError::Input(format!("1 to {most} runs may be processed at once; to have none, pause their class")))
}
