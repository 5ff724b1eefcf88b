//! `check`: a few numbers of the whole store, for monitoring. Changes nothing.

use serde::Serialize;

use super::conditions::Inquiry;
use super::standstill::{Standstill, standstills};
use crate::{Context, EngineResult};

/// What monitoring watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Measures {
    /// Seconds for which the first due task has had no run; 0 where none is due.
    pub oldest_due_secs: i64,
    /// Tasks that are due and have no run.
    pub due: i64,
    /// Runs that wait for a runner.
    pub waiting: i64,
    /// Tasks whose last attempt failed or timed out.
    pub failed: i64,
    /// Tasks that crashed too often.
    pub quarantined: i64,
    /// Runs whose runner is dead or silent.
    pub lost: i64,
    /// Runners that live and have not renewed their lease in time: their slots stay taken.
    pub silent_runners: i64,
    /// Runners that live.
    pub runners: i64,
    /// Due tasks and waiting runs that a pause, a missing runner or taken slots keep from being processed.
    pub stalled: i64,
}

/// The numbers of this moment. What there are many of is counted up to 100,000.
///
/// # Errors
/// The database's.
pub fn measure(ctx: &mut Context) -> EngineResult<Measures> {
    let now = ctx.store.now()?;
    let counts = ctx.store.count_tasks(None)?;
    let mut inquiry = Inquiry::new(ctx, now);
    let lost = i64::try_from(inquiry.lost_runs()?.len()).unwrap_or(i64::MAX);
    let runners = i64::try_from(inquiry.live_runners()?.len()).unwrap_or(i64::MAX);
    let silent_runners = i64::try_from(inquiry.silent_runners()?.len()).unwrap_or(i64::MAX);
    let stalled = standstills(ctx)?.iter().map(Standstill::tasks).max().unwrap_or(0);
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
    })
}
