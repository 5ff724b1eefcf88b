//! Registration as a runner under TaskQueueRunnerLimit (the scheme's registerAsTaskQueueRunner, rule R5).

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::lease::{LeaseKeeper, Leases};
use crate::outbox::outcomes::send_left_over;
use crate::upkeep::silence::{SilenceLimit, boot_ms_now};
use crate::{Context, EngineError, EngineResult};
use taskqueue_domain::run::lease::LeaseTimes;
use taskqueue_domain::task::ids::RunnerId;
use taskqueue_domain::task::records::Runner;
use taskqueue_host::clock::Moment;
use taskqueue_process::identities::identity::{Liveness, ProcessIdentity};
use taskqueue_store::{NewRunner, Registration};

/// Marks the runners finished whose process is dead (the scheme's getQueueTaskRunnerCount, its first half), and those
/// that cannot be seen from here and have been silent for the time of a lease. Returns how many.
///
/// # Errors
/// The database's.
pub fn finish_dead_runners(ctx: &mut Context, lease: LeaseTimes) -> EngineResult<usize> {
    let (mut dead, mut unseen) = (Vec::new(), Vec::new());
    for runner in ctx.store.list_live_runners()? {
        match liveness_of(&runner.process_identity) {
            Liveness::Dead => dead.push(runner.id),
            Liveness::Unknown => unseen.push(runner.id),
            Liveness::Alive => {}
        }
    }
    Ok(ctx.store.finish_runners(&dead)? + ctx.store.finish_silent_runners(&unseen, lease.lease_secs)?)
}

/// Whether the process that a row names is alive; what cannot be read names nobody that can be seen from here.
#[must_use]
pub fn liveness_of(identity: &str) -> Liveness {
    identity.parse::<ProcessIdentity>().map_or(Liveness::Unknown, |identity| identity.liveness())
}

/// How a runner stands that has not said that it ended, as far as that can be told from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunnerHealth {
    /// Its process lives, or it was heard of within the time of a lease.
    Alive,
    /// Its process is dead.
    Dead,
    /// It has not renewed its lease for the time of one: its process lives on this host and is suspended or cannot reach the
    /// database, or it cannot be seen from here.
    Silent,
}

impl RunnerHealth {
    /// In one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Dead => "dead",
            Self::Silent => "silent",
        }
    }
}

/// How this runner stands. Who cannot be seen from here must have been heard of since then; who can be, within the limit if
/// there is one.
pub(crate) fn health_of(runner: &Runner, heard_since: DateTime<Utc>, limit: Option<&SilenceLimit>) -> RunnerHealth {
    match liveness_of(&runner.process_identity) {
        Liveness::Alive if limit.is_some_and(|limit| limit.silent_secs(runner, Liveness::Alive).is_some()) => {
            RunnerHealth::Silent
        }
        Liveness::Alive => RunnerHealth::Alive,
        Liveness::Dead => RunnerHealth::Dead,
        Liveness::Unknown if runner.heartbeat_on >= heard_since => RunnerHealth::Alive,
        Liveness::Unknown => RunnerHealth::Silent,
    }
}

/// Registers this process as a runner with so many slots; dead runners give theirs up first. `only` are the patterns of the
/// classes that it takes; none takes all that are known here.
///
/// # Errors
/// The database's.
pub fn register(ctx: &mut Context, slots: i32, only: &[String], lease: LeaseTimes) -> EngineResult<Registration> {
    if let Some(lost) = ctx.lost_runner {
        // Its process lives, so no other runner finishes it: this one would wait for its own slots.
        ctx.store.finish_runners(&[lost])?;
        ctx.lost_runner = None;
    }
    finish_dead_runners(ctx, lease)?;
    let runner = NewRunner {
        process_id: ctx.me.process_id,
        host: ctx.me.host.clone(),
        process_identity: ctx.me.identity()?.to_owned(),
        slots,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        name: ctx.me.runner_name.clone(),
        classes: ctx.handlers.served(only),
        boot_ms: boot_ms_now,
    };
    Ok(ctx.store.register_runner(&runner)?)
}

/// Does this as the runner that asked for its registration at this moment, and says then that the runner has finished.
///
/// # Errors
/// Those of `work`, and the database's.
pub(crate) fn as_runner<T>(
    ctx: &mut Context,
    runner_id: RunnerId,
    asked_at: Moment,
    lease: LeaseTimes,
    work: impl FnOnce(&mut Context, &Leases) -> EngineResult<T>,
) -> EngineResult<T> {
    let keeper = LeaseKeeper::start(ctx.store.url(), runner_id, &ctx.me, lease, asked_at);
    let result = keeper.and_then(|keeper| work(ctx, keeper.leases()));
    // They have nothing to do any more, and their runner is about to say that it has finished.
    ctx.handlers.coprocesses().drain();
    // A database that could not be reached for so long is not waited for once more; that this runner has left will be noticed.
    if result.as_ref().is_err_and(EngineError::is_loss_of_database) {
        ctx.lost_runner = Some(runner_id);
        return result;
    }
    fault_point!("runner.before_finish");
    let finished = ctx.store.finish_runners(&[runner_id]);
    fault_point!("runner.finished");
    if result.is_err() && finished.is_ok() {
        // The database answers again; what could not be sent now can. Otherwise the next process sends it.
        let _ = send_left_over(ctx);
    }
    let done = result?;
    finished?;
    Ok(done)
}
