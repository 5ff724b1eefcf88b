//! `check`: some numbers of the whole store, for monitoring. Changes nothing.

use serde::Serialize;

use crate::context::Context;
use crate::error::EngineResult;
use crate::inspect::diagnosis::conditions::Inquiry;
use crate::inspect::diagnosis::standstill::{Standstill, standstills};

/// The monitored numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Measures {
    /// Seconds for which the first due task has had no run; 0 if none is due.
    pub oldest_due_secs: i64,
    /// Due tasks without a run.
    pub due: i64,
    /// Runs that wait for a runner.
    pub waiting: i64,
    /// Tasks whose last attempt failed or timed out.
    pub failed: i64,
    /// Quarantined tasks.
    pub quarantined: i64,
    /// Runs whose runner is dead or silent.
    pub lost: i64,
    /// Live runners that have not renewed their lease in time: their slots stay taken.
    pub silent_runners: i64,
    /// Live runners.
    pub runners: i64,
    /// Due tasks and waiting runs that are blocked by a pause, a missing runner or taken slots.
    pub stalled: i64,
    /// Schedules whose time passed more than a minute ago without a run.
    pub late_schedules: i64,
}

/// Returns the current numbers. Large counts stop at 100,000.
///
/// # Errors
/// Returns an error if the database fails.
pub fn measure(ctx: &mut Context) -> EngineResult<Measures> {
    let now = ctx.store.now()?;
    let counts = ctx.store.count_tasks(None)?;
    let mut inquiry = Inquiry::new(ctx, now);
    let lost = i64::try_from(inquiry.lost_runs()?.len()).unwrap_or(i64::MAX);
    let runners = i64::try_from(inquiry.live_runners()?.len()).unwrap_or(i64::MAX);
    let silent_runners = i64::try_from(inquiry.silent_runners()?.len()).unwrap_or(i64::MAX);
    let stalled = standstills(ctx)?.iter().map(Standstill::tasks).max().unwrap_or(0);
    let (_, late_schedules) = ctx.store.count_schedules(now)?;
    Ok(Measures {
        oldest_due_secs: counts.oldest_due_secs.unwrap_or(0),
        due: counts.due.count,
        waiting: counts.waiting_runs.count,
        failed: counts.failed.count + counts.timeout.count,
        quarantined: counts.quarantined.count,
        lost,
        silent_runners,
        runners,
        stalled,
        late_schedules: late_schedules.count,
    })
}
