//! `taskqueue retry`

use clap::Args;

use super::reason::ReasonArgs;
use super::selected::{self, BulkVerb, SelectedArgs};
use crate::cli::output::Out;
use crate::cli::session::Session;
use crate::domain::status::TaskStatus;
use crate::engine::retry::{preview_retry, retry_tasks};

/// Try failed, exhausted or quarantined tasks again, with all their retries
///
/// A task that failed and waits for its next attempt is due at once. Failures and crashes are counted from zero.
#[derive(Debug, Args)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    selected: SelectedArgs,
    #[command(flatten)]
    reason: ReasonArgs,
}

pub(crate) fn run(session: Session, args: &RetryArgs, out: &mut Out) -> anyhow::Result<u8> {
    let mut ctx = session.open()?;
    let mut verb = BulkVerb {
        name: "retry",
        done: "tried again",
        statuses: vec![TaskStatus::Failed, TaskStatus::Timeout],
        widen: None,
        act: &mut |ctx, ids, hear| ctx.because(args.reason.text(), |ctx| retry_tasks(ctx, ids, hear)),
        preview: &mut preview_retry,
    };
    selected::run(&mut ctx, &args.selected, &mut verb, out)
}
