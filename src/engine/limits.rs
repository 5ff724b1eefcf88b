//! `limits`: how many runs of a class may be processed at once, and how many may start in a time.

use serde::Serialize;

use super::{Context, EngineError, EngineResult};
use crate::domain::limits::{ClassLimit, MAX_RUNNING};
use crate::domain::task_class::TaskClass;

/// The limits of a class, and how far they are used.
#[derive(Clone, Debug, Serialize)]
pub struct LimitLine {
    /// The limits.
    #[serde(flatten)]
    pub limit: ClassLimit,
    /// Runs of the class that are being processed.
    pub running: i64,
}

/// All limits, by class.
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
    if limit.max_running.is_some_and(|max| !(1..=MAX_RUNNING).contains(&max)) {
        return Err(EngineError::Input(format!("a class has 1 to {MAX_RUNNING} runs at once; to have none, pause it")));
    }
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
