//! Registration as a runner under TaskQueueRunnerLimit (the scheme's registerAsTaskQueueRunner, rule R5).

use super::{Context, EngineResult};
use crate::domain::ids::RunnerId;
use crate::os::identity::{Liveness, ProcessIdentity};
use crate::store::{NewRunner, Registration};

/// Marks the runners finished whose process is dead (the scheme's getQueueTaskRunnerCount, its first half). Returns how
/// many. Those that cannot be seen from here are left alone.
///
/// # Errors
/// The database's.
pub fn finish_dead_runners(ctx: &mut Context) -> EngineResult<usize> {
    let dead: Vec<RunnerId> = ctx
        .store
        .list_live_runners()?
        .into_iter()
        .filter(|runner| liveness_of(&runner.process_identity) == Liveness::Dead)
        .map(|runner| runner.id)
        .collect();
    Ok(ctx.store.finish_runners(&dead)?)
}

/// Whether the process that a row names is alive; what cannot be read names nobody that can be seen from here.
#[must_use]
pub fn liveness_of(identity: &str) -> Liveness {
    identity.parse::<ProcessIdentity>().map_or(Liveness::Unknown, |identity| identity.liveness())
}

/// Registers this process as a runner with one slot; dead runners give theirs up first.
///
/// # Errors
/// The database's.
pub fn register(ctx: &mut Context) -> EngineResult<Registration> {
    finish_dead_runners(ctx)?;
    let runner = NewRunner {
        process_id: ctx.me.process_id,
        host: ctx.me.host.clone(),
        process_identity: ctx.me.identity.clone(),
        slots: 1,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    Ok(ctx.store.register_runner(&runner)?)
}
