//! `taskqueue requeue`

use clap::Args;

use super::reason::ReasonArgs;
use super::selected::{self, BulkVerb, SelectedArgs};
use crate::output::Out;
use crate::session::Session;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_engine::change::requeue::{
    preview_requeue, preview_requeue_by_force, requeue_by_force, requeue_tasks, requeueable,
};
use taskqueue_engine::change::selected::OnAnswer;
use taskqueue_engine::{Context, EngineResult};

/// Requeues these tasks, or says what would be done.
type Requeue = fn(&mut Context, &[TaskId], OnAnswer<'_>) -> EngineResult<()>;

/// Run finished tasks again
///
/// The same tasks, with the same ids, from the start and at once. What they did before stays as their runs. `retry` is for
/// what failed.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue requeue 4711\n  taskqueue requeue class=mail.* status=cancelled newer=1d\n  taskqueue requeue 4711 --force --reason 'bot-1 was removed'"
)]
pub(crate) struct RequeueArgs {
    #[command(flatten)]
    selected: SelectedArgs,
    #[command(flatten)]
    reason: ReasonArgs,
    /// Also tasks in progress that a claimant has: take their runs from it first, as `release --force` does
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(session: Session, args: &RequeueArgs, out: &mut Out) -> anyhow::Result<u8> {
    let mut ctx = session.open()?;
    let (requeue, preview): (Requeue, Requeue) =
        if args.force { (requeue_by_force, preview_requeue_by_force) } else { (requeue_tasks, preview_requeue) };
    let mut verb = BulkVerb {
        name: "requeue",
        done: "queued again",
        statuses: requeueable(args.force),
        take: None,
        widen: None,
        may_be_nothing: false,
        act: &mut |ctx, ids, hear| ctx.because(args.reason.text(), |ctx| requeue(ctx, ids, hear)),
        preview: &mut |ctx, ids, hear| preview(ctx, ids, hear),
    };
    selected::run(&mut ctx, &args.selected, &mut verb, out)
}
