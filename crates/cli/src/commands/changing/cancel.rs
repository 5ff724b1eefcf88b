//! `taskqueue cancel`

use clap::Args;

use crate::commands::options::reason::ReasonArgs;
use crate::commands::options::selected;
use crate::commands::options::selected::{BulkVerb, SelectedArgs};
use crate::output::Out;
use crate::session::Session;
use taskqueue_engine::change::cancel::{cancel_tasks, cancellable, preview_cancel, with_dependants};

/// Cancel waiting or running tasks
///
/// Cancels a waiting task at once. The runner or claimant of a running task ends it; a handler gets TERM, and KILL after the
/// `kill_grace_secs` of its class. A run that still succeeds counts as a success.
#[derive(Debug, Args)]
#[command(mut_arg("reason", |arg| arg.help("Reason, stored with the task [default: who cancelled it]")))]
#[command(
    after_help = "Examples:\n  taskqueue cancel 17 --reason 'order withdrawn'\n  taskqueue cancel class=newsletter status=waiting --dry-run"
)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    selected: SelectedArgs,
    /// Also cancel the tasks that wait for them, directly or through others
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
        can_continue: true,
        act: &mut |ctx, ids, hear| cancel_tasks(ctx, ids, reason, hear),
        preview: &mut preview_cancel,
    };
    selected::run(&mut ctx, &args.selected, &mut verb, out)
}
