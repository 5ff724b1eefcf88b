//! Registers runners under TaskQueueRunnerLimit (the scheme's registerAsTaskQueueRunner, rule R5).

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use crate::outbox::outcomes::send_left_over;
use crate::running::runner::lease::{LeaseKeeper, Leases};
use crate::running::runner::silence::{SilenceLimit, boot_ms_now};
use taskqueue_domain::limits::lease::LeaseTimes;
use taskqueue_domain::task::ids::RunnerId;
use taskqueue_domain::task::records::Runner;
use taskqueue_host::clock::Moment;
use taskqueue_process::identities::identity::{Liveness, ProcessIdentity};
use taskqueue_store::{NewRunner, Registration};

/// Marks runners as finished whose process is dead (the first half of the scheme's getQueueTaskRunnerCount). Also marks runners
/// that cannot be checked from here and have been silent for the time of a lease. Returns how many.
///
/// # Errors
/// Returns an error if the database fails.
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

/// Returns whether the process that a row identifies is alive. An identity that cannot be parsed is unknown.
#[must_use]
pub fn liveness_of(identity: &str) -> Liveness {
    identity.parse::<ProcessIdentity>().map_or(Liveness::Unknown, |identity| identity.liveness())
}

/// The health of a runner that has not finished, as far as this host can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunnerHealth {
    /// Its process is alive, or it has renewed its lease in time.
    Alive,
    /// Its process is dead.
    Dead,
    /// It has not renewed its lease in time. Either its process is on this host and is suspended or cannot reach the database,
    /// or it cannot be checked from here.
    Silent,
}

impl RunnerHealth {
    /// Returns one word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Dead => "dead",
            Self::Silent => "silent",
        }
    }
}

/// Returns the health of a runner. One that cannot be checked from here must have renewed its lease since `heard_since`; one
/// that can, within `limit` if that is set.
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

/// Registers this process as a runner with this many slots; dead runners are marked as finished first. `only` contains patterns
/// of the classes that it takes; empty means all classes known here.
///
/// # Errors
/// Returns an error if the database fails.
pub fn register(ctx: &mut Context, slots: i32, only: &[String], lease: LeaseTimes) -> EngineResult<Registration> {
    if let Some(lost) = ctx.lost_runner {
        // Its process is alive, so no other runner marks it as finished: this one would wait for its own slots.
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

/// Runs `work` as this runner, whose registration was requested at `asked_at`, and then marks the runner as finished.
///
/// # Errors
/// Returns the errors of `work`, or an error if the database fails.
pub(crate) fn as_runner<T>(
    ctx: &mut Context,
    runner_id: RunnerId,
    asked_at: Moment,
    lease: LeaseTimes,
    work: impl FnOnce(&mut Context, &Arc<Leases>) -> EngineResult<T>,
) -> EngineResult<T> {
    let keeper = LeaseKeeper::start(ctx.store.url(), runner_id, &ctx.me, lease, asked_at);
    let result = keeper.and_then(|keeper| work(ctx, &keeper.leases));
    // They have no more runs, and the runner is about to be marked as finished.
    ctx.handlers.coprocesses().drain();
    // Do not wait again for a database that was unreachable for so long; others will notice that this runner has exited.
    if result.as_ref().is_err_and(EngineError::is_loss_of_database) {
        ctx.lost_runner = Some(runner_id);
        return result;
    }
    fault_point!("runner.before_finish");
    let finished = ctx.store.finish_runners(&[runner_id]);
    fault_point!("runner.finished");
    if result.is_err() && finished.is_ok() {
        // The database is reachable again, so retry what could not be sent. Otherwise the next process sends it.
        let _ = send_left_over(ctx);
    }
    let done = result?;
    finished?;
    Ok(done)
}
