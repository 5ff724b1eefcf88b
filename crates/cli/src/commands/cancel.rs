//! `taskqueue cancel`

use clap::Args;

use super::reason::ReasonArgs;
use super::selected::{self, BulkVerb, SelectedArgs};
use crate::output::Out;
use crate::session::Session;
use taskqueue_engine::change::cancel::{cancel_tasks, cancellable, preview_cancel, with_dependants};

/// Cancel tasks, waiting or running
///
/// What waits is cancelled at once, what runs through its runner. A handler that runs gets TERM, and KILL after the grace
/// of its class. What it has finished by then stays finished.
#[derive(Debug, Args)]
#[command(mut_arg("reason", |arg| arg.help("Why; kept with the task [default: who did it]")))]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    selected: SelectedArgs,
    /// Also what waits for them, and what waits for that
    #[arg(long)]
    dependants: bool,
    #[command(flatten)]
    reason: ReasonArgs,
}

pub(crate) fn run(session: Session, args: &CancelArgs, out: &mut Out) -> anyhow::Result<u8> {
    let mut ctx = session.open()?;
    let reason = args.reason.text();
    let mut verb = BulkVerb {
        name: "cancel",
        done: "cancelled",
        statuses: cancellable(args.dependants),
        take: None,
        widen: args.dependants.then_some(with_dependants),
        may_be_nothing: false,
        act: &mut |ctx, ids, hear| cancel_tasks(ctx, ids, reason, hear),
        preview: &mut preview_cancel,
    };
    selected::run(&mut ctx, &args.selected, &mut verb, out)
}
