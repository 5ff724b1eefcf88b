//! Whether a runner has been silent for a lease. For runners of other hosts the database's clock decides. A runner whose process
//! lives on this host stored the clock that counts from boot beside each renewal, so that a database's clock that was set since
//! then is no reason to take its runs.

use chrono::{DateTime, TimeDelta, Utc};

use crate::{Context, EngineResult};
use taskqueue_domain::run::lease::TwoClocks;
use taskqueue_domain::task::records::{Run, Runner};
use taskqueue_host::clock::Moment;
use taskqueue_process::identities::identity::{Liveness, ProcessIdentity};
use taskqueue_store::{EndCondition, Store, StoreResult};

/// A runner that lives renews more often, whatever the settings were when it started.
const LONGEST_RENEWAL_SECS: i64 = 7_200;

/// Milliseconds since this host booted.
pub(crate) fn boot_ms_now() -> i64 {
    Moment::now().millis()
}

/// The present moment, on both clocks.
pub(crate) fn both_clocks(store: &mut Store) -> StoreResult<TwoClocks> {
    Ok(TwoClocks { on: store.now()?, boot_ms: boot_ms_now() })
}

/// What the lease of a run in progress shows.
pub(crate) enum Silence {
    /// Its runner has renewed it.
    Renewed,
    /// It is over on the database's clock, which was set by so much since its runner renewed it.
    ClockSet(TimeDelta),
    /// It is over, and may be taken on this condition.
    Over(EndCondition),
}

/// Whether the runner of this run has been silent for a lease, where its process is known to be `liveness`.
///
/// # Errors
/// The database's.
pub(crate) fn silence_of(
    ctx: &mut Context,
    run: &Run,
    liveness: Liveness,
    now: TwoClocks,
    lease_secs: i64,
) -> EngineResult<Silence> {
    let Some(lease) = run.lease_expires_on else { return Ok(Silence::Renewed) };
    let is_over = lease < now.on;
    // No runner can have asked for so much at this time: the clock was ahead then.
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

/// When the runner of this run renewed its lease last, on both clocks, where its process lives on this host.
fn own_heartbeat(ctx: &mut Context, run: &Run, liveness: Liveness) -> EngineResult<Option<TwoClocks>> {
    let Some(runner_id) = run.runner_id.filter(|_| liveness == Liveness::Alive) else { return Ok(None) };
    let runner = ctx.store.find_runner(runner_id)?;
    Ok(runner.filter(|runner| runner.process_identity == run.process_identity).as_ref().and_then(heartbeat))
}

fn heartbeat(runner: &Runner) -> Option<TwoClocks> {
    runner.heartbeat_boot_ms.map(|boot_ms| TwoClocks { on: runner.heartbeat_on, boot_ms })
}

/// For how long a runner may be silent.
pub(crate) struct SilenceLimit {
    now: TwoClocks,
    lease_secs: i64,
}

impl SilenceLimit {
    /// The limit at this moment; `None` where silence does not count, because the server came up less than a lease ago.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn read(store: &mut Store, lease_secs: i64) -> StoreResult<Option<Self>> {
        if !store.leases_count(lease_secs)? {
            return Ok(None);
        }
        Ok(Some(Self { now: both_clocks(store)?, lease_secs }))
    }

    /// Seconds since this runner renewed its lease, if they are more than the time of one. Its process is known to be `liveness`.
    pub(crate) fn silent_secs(&self, runner: &Runner, liveness: Liveness) -> Option<i64> {
        let silent = match liveness {
            Liveness::Alive => time_since_renewal(runner, self.now),
            // The clock that counts from boot is that of another host.
            Liveness::Dead | Liveness::Unknown => self.now.on - runner.heartbeat_on,
        };
        Some(silent.num_seconds()).filter(|secs| *secs > self.lease_secs)
    }
}

/// How long ago this runner renewed its lease. Its process must live on this host.
fn time_since_renewal(runner: &Runner, now: TwoClocks) -> TimeDelta {
    heartbeat(runner).map_or_else(|| now.on - runner.heartbeat_on, |last| now.elapsed_since(last))
}

/// By how much the database's clock was set since this runner renewed its lease, where its process lives on this host.
pub(crate) fn step_seen_by(runner: &Runner, now: TwoClocks) -> Option<TimeDelta> {
    let identity = runner.process_identity.parse::<ProcessIdentity>().ok()?;
    let last = heartbeat(runner).filter(|_| identity.liveness() == Liveness::Alive)?;
    Some(now.step_since(last)).filter(|step| !step.is_zero())
}
