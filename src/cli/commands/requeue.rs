//! `taskqueue requeue`

use clap::Args;

use super::reason::ReasonArgs;
use super::selected::{self, BulkVerb, SelectedArgs};
use crate::cli::output::Out;
use crate::cli::session::Session;
use crate::domain::transition::{TaskEvent, statuses_for};
use crate::engine::requeue::{preview_requeue, requeue_tasks};

/// Run tasks again that succeeded, failed or were cancelled
///
/// The same tasks, with the same ids, from the start and at once. What they did before stays as their runs. `retry` is for
/// what failed.
#[derive(Debug, Args)]
pub(crate) struct RequeueArgs {
    #[command(flatten)]
    selected: SelectedArgs,
    #[command(flatten)]
    reason: ReasonArgs,
}

pub(crate) fn run(session: Session, args: &RequeueArgs, out: &mut Out) -> anyhow::Result<u8> {
    let mut ctx = session.open()?;
    let mut verb = BulkVerb {
        name: "requeue",
        done: "queued again",
        statuses: statuses_for(TaskEvent::Requeue),
        take: None,
        widen: None,
        may_be_nothing: false,
        act: &mut |ctx, ids, hear| ctx.because(args.reason.text(), |ctx| requeue_tasks(ctx, ids, hear)),
        preview: &mut preview_requeue,
    };
    selected::run(&mut ctx, &args.selected, &mut verb, out)
}
