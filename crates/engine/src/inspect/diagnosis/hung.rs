//! Runs in progress that neither end nor report, while other runs wait for their slots.

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use crate::context::Context;
use crate::error::EngineResult;
use taskqueue_domain::run::status::Stored;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Run;

/// A run that has not reported for this long counts as hung, if others wait for its slot.
pub(crate) const HUNG_AFTER: TimeDelta = TimeDelta::minutes(10);

/// A run in progress that has not reported for a long time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HungRun {
    /// Its task.
    pub task_id: TaskId,
    /// Its class.
    pub class: String,
    /// The claimant that has it; `None` for a run of a runner.
    pub claimant: Option<String>,
    /// PID of its handler; `None` for a handler in Rust, and for a claimant that has not given its PID.
    pub process_id: Option<i64>,
    /// The host of the process.
    pub host: String,
    /// Seconds since its start or its last report.
    pub silent_secs: i64,
    /// Seconds without a report after which it is ended, as configured on this host.
    pub timeout_secs: i64,
}

/// Returns those of these runs in progress that hang, the longest silent first. A run whose cancellation was requested is left
/// out: a second request would not end it either.
pub(crate) fn hung_among(ctx: &mut Context, runs: &[Run], now: DateTime<Utc>) -> EngineResult<Vec<HungRun>> {
    let is_hung = |run: &&Run| now - run.updated_on > HUNG_AFTER && run.cancel_requested_on.is_none();
    let mut silent: Vec<&Run> = runs.iter().filter(is_hung).collect();
    if silent.is_empty() {
        return Ok(Vec::new());
    }
    silent.sort_by_key(|run| (run.updated_on, run.task_id));
    let settings = ctx.store.settings()?;
    let ids: Vec<TaskId> = silent.iter().map(|run| run.task_id).collect();
    let tasks = ctx.store.get_tasks(&ids)?;
    let hung = silent.into_iter().map(|run| {
        let of_task = tasks.iter().find(|task| task.id == run.task_id).and_then(|task| task.timeout_secs);
        let class = match &run.class {
            Stored::Known(class) => Some(class),
            Stored::Unknown(_) => None,
        };
        HungRun {
            task_id: run.task_id,
            class: run.class.to_string(),
            claimant: run.claimant.clone(),
            process_id: run.handler_process_id.or(run.process_id.filter(|_| run.claimant.is_some())),
            host: run.host.clone(),
            silent_secs: (now - run.updated_on).num_seconds(),
            timeout_secs: ctx.handlers.timeout_secs(class, of_task, &settings),
        }
    });
    Ok(hung.collect())
}
