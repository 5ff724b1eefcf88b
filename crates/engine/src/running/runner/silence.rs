//! Decides whether a runner has been silent for the time of a lease. For runners of other hosts, the database's clock decides.
//! A runner of this host also stores its boot clock with each renewal. So a database's clock that was set since then does not
//! cause a rescue.

use chrono::{DateTime, TimeDelta, Utc};

use crate::context::Context;
use crate::error::EngineResult;
use taskqueue_domain::limits::lease::TwoClocks;
use taskqueue_domain::task::records::{Run, Runner};
use taskqueue_host::clock::Moment;
use taskqueue_process::identities::identity::{Liveness, ProcessIdentity};
use taskqueue_store::{EndCondition, Store, StoreResult};

/// Every live runner renews more often, whatever the settings were when it started.
const LONGEST_RENEWAL_SECS: i64 = 7_200;

/// Returns the milliseconds since this host booted.
pub(crate) fn boot_ms_now() -> i64 {
    Moment::now().millis()
}

/// Returns the current time on both clocks.
pub(crate) fn both_clocks(store: &mut Store) -> StoreResult<TwoClocks> {
    Ok(TwoClocks { on: store.now()?, boot_ms: boot_ms_now() })
}

/// The state of the lease of a run in progress.
pub(crate) enum Silence {
    /// It is valid.
    Renewed,
    /// It has expired on the database's clock, which was set by this much since the renewal.
    ClockSet(TimeDelta),
    /// It has expired, and the run may be rescued on this condition.
    Over(EndCondition),
}

/// Returns the state of the run's lease; `liveness` is that of its process.
///
/// # Errors
/// Returns an error if the database fails.
pub(crate) fn silence_of(
    ctx: &mut Context,
    run: &Run,
    liveness: Liveness,
    now: TwoClocks,
    lease_secs: i64,
) -> EngineResult<Silence> {
    let Some(lease) = run.lease_expires_on else { return Ok(Silence::Renewed) };
    let is_over = lease < now.on;
    // No runner can have requested such a late expiry now, so the clock was ahead at the renewal.
    let is_far = (lease - now.on).num_seconds() > lease_secs.saturating_mul(2);
    if !is_over && !is_far {
        return Ok(Silence::Renewed);
    }
    let over =
        if is_over { EndCondition::LeaseOver { lease_secs } } else { EndCondition::LeaseIs { lease, lease_secs } };
    let Some(last) = own_heartbeat(ctx, run, liveness)? else {
        return Ok(if is_over { Silence::Over(over) } else { Silence::Renewed });
    };
    if now.elapsed_since(last).num_seconds() > lease_secs.saturating_mul(2).max(LONGEST_RENEWAL_SECS) {
        return Ok(Silence::Over(over));
    }
    let step = now.step_since(last).max(TimeDelta::zero());
    Ok(match is_over {
        true if lease < set_back(now.on, step) => Silence::Over(over),
        true => Silence::ClockSet(step),
        false => Silence::Renewed,
    })
}

fn set_back(on: DateTime<Utc>, step: TimeDelta) -> DateTime<Utc> {
    on.checked_sub_signed(step).unwrap_or(on)
}

/// Returns the last renewal of the run's runner, on both clocks, if its process is alive on this host.
fn own_heartbeat(ctx: &mut Context, run: &Run, liveness: Liveness) -> EngineResult<Option<TwoClocks>> {
    let Some(runner_id) = run.runner_id.filter(|_| liveness == Liveness::Alive) else { return Ok(None) };
    let runner = ctx.store.find_runner(runner_id)?;
    Ok(runner.filter(|runner| runner.process_identity == run.process_identity).as_ref().and_then(heartbeat))
}

fn heartbeat(runner: &Runner) -> Option<TwoClocks> {
    runner.heartbeat_boot_ms.map(|boot_ms| TwoClocks { on: runner.heartbeat_on, boot_ms })
}

/// The longest silence of a runner that counts as healthy.
pub(crate) struct SilenceLimit {
    now: TwoClocks,
    lease_secs: i64,
}

impl SilenceLimit {
    /// Returns the current limit; `None` while silence does not count, because the server started less than one lease ago.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub(crate) fn read(store: &mut Store, lease_secs: i64) -> StoreResult<Option<Self>> {
        if !store.leases_count(lease_secs)? {
            return Ok(None);
        }
        Ok(Some(Self { now: both_clocks(store)?, lease_secs }))
    }

    /// Returns the seconds since this runner renewed its lease, if they exceed the lease. `liveness` is that of its process.
    pub(crate) fn silent_secs(&self, runner: &Runner, liveness: Liveness) -> Option<i64> {
        let silent = match liveness {
            Liveness::Alive => time_since_renewal(runner, self.now),
            // Its boot clock is that of another host.
            Liveness::Dead | Liveness::Unknown => self.now.on - runner.heartbeat_on,
        };
        Some(silent.num_seconds()).filter(|secs| *secs > self.lease_secs)
    }
}

/// Returns the time since this runner renewed its lease. Its process must be on this host.
fn time_since_renewal(runner: &Runner, now: TwoClocks) -> TimeDelta {
    heartbeat(runner).map_or_else(|| now.on - runner.heartbeat_on, |last| now.elapsed_since(last))
}

/// Returns by how much the database's clock was set since this runner renewed its lease, if its process is on this host.
pub(crate) fn step_seen_by(runner: &Runner, now: TwoClocks) -> Option<TimeDelta> {
    let identity = runner.process_identity.parse::<ProcessIdentity>().ok()?;
    let last = heartbeat(runner).filter(|_| identity.liveness() == Liveness::Alive)?;
    Some(now.step_since(last)).filter(|step| !step.is_zero())
}
