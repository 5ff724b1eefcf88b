//! `taskqueue worker`: what your own workers call, in any language.

use clap::{Args, Subcommand};

use crate::commands::claiming::{claim, heartbeat, release, resolve};
use crate::output::Out;
use crate::session::Session;

/// Claim runs and finish them, from your own worker
///
/// A worker in any language claims runs, renews its lease with heartbeats, and resolves or releases each run. Every run has a
/// token, which only its claimant knows.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue worker claim --claimant bot-1 --wait 30s\n  taskqueue worker heartbeat 7 --token \"$token\"\n  taskqueue worker resolve 7 --token \"$token\" --results '{\"sent\":1}'"
)]
pub(crate) struct WorkerArgs {
    #[command(subcommand)]
    action: WorkerVerb,
}

#[derive(Debug, Subcommand)]
enum WorkerVerb {
    Claim(claim::ClaimArgs),
    Heartbeat(heartbeat::HeartbeatArgs),
    Resolve(resolve::ResolveArgs),
    Release(release::ReleaseArgs),
}

pub(crate) fn run(session: Session, args: &WorkerArgs, out: &mut Out) -> anyhow::Result<u8> {
    match &args.action {
        WorkerVerb::Claim(args) => claim::run(session, args, out),
        WorkerVerb::Heartbeat(args) => heartbeat::run(session, args, out),
        WorkerVerb::Resolve(args) => resolve::run(session, args, out),
        WorkerVerb::Release(args) => release::run(session, args, out),
    }
}
