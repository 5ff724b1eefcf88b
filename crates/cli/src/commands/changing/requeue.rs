//! `taskqueue requeue`

use clap::Args;

use crate::commands::options::reason::ReasonArgs;
use crate::commands::options::selected;
use crate::commands::options::selected::{BulkVerb, SelectedArgs};
use crate::output::Out;
use crate::session::Session;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_engine::change::selected::OnAnswer;
use taskqueue_engine::claiming::requeue::{
    preview_requeue, preview_requeue_by_force, requeue_by_force, requeue_tasks, requeueable,
};
use taskqueue_engine::{Context, EngineResult};

/// Requeues these tasks, or reports what would be done.
type Requeue = fn(&mut Context, &[TaskId], OnAnswer<'_>) -> EngineResult<()>;

/// Run finished tasks again
///
/// Starts the same tasks, with the same ids, from the beginning and at once. Their earlier runs are kept. For failed tasks, use
/// `retry`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue requeue 4711\n  taskqueue requeue class=mail.* status=cancelled newer=1d\n  taskqueue requeue 4711 --force --reason 'bot-1 was removed'"
)]
pub(crate) struct RequeueArgs {
    #[command(flatten)]
    selected: SelectedArgs,
    #[command(flatten)]
    reason: ReasonArgs,
    /// Also requeue tasks that a claimant is processing: first take their runs from it, as `worker release --force` does
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(session: Session, args: &RequeueArgs, out: &mut Out) -> anyhow::Result<u8> {
    let mut ctx = session.open()?;
    let (requeue, preview): (Requeue, Requeue) =
        if args.force { (requeue_by_force, preview_requeue_by_force) } else { (requeue_tasks, preview_requeue) };
    let mut verb = BulkVerb {
        name: "requeue",
        done: "requeued",
        statuses: requeueable(args.force),
        take: None,
        widen: None,
        may_be_nothing: false,
        act: &mut |ctx, ids, hear| ctx.because(args.reason.text(), |ctx| requeue(ctx, ids, hear)),
        preview: &mut |ctx, ids, hear| preview(ctx, ids, hear),
    };
    selected::run(&mut ctx, &args.selected, &mut verb, out)
}
