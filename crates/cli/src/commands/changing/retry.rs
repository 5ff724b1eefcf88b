//! `taskqueue retry`

use clap::Args;

use crate::commands::options::reason::ReasonArgs;
use crate::commands::options::selected;
use crate::commands::options::selected::{BulkVerb, SelectedArgs};
use crate::commands::queueing::queue::read_data;
use crate::output::Out;
use crate::session::Session;
use taskqueue_domain::limits::limit::Rate;
use taskqueue_engine::change::retry::{RetryOptions, preview_retry, retry_tasks, retryable};

/// Retry failed tasks, or run finished ones again
///
/// A failed, exhausted or quarantined task gets all its retries again, with failures and crashes counted from zero; if it waits
/// for its next attempt, it is due at once. A task that succeeded, expired or was cancelled starts again from the beginning. The
/// tasks keep their ids and their earlier runs. Filters without `status` select only failed and timed-out tasks.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue retry 4711\n  taskqueue failures\n  taskqueue retry class=mail.send error=exit:75 --sample 5\n  taskqueue retry class=mail.send error=exit:75 --rate 10/1m --yes\n  taskqueue retry 4711 --data @mended.json\n  taskqueue retry class=mail.* status=cancelled newer=1d\n  taskqueue retry 4711 --force --reason 'bot-1 was removed'"
)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    selected: SelectedArgs,
    /// Retry with other data: JSON text, `-` for standard input, or `@FILE`; its events keep the earlier data
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    data: Option<String>,
    /// Retry only the N oldest of the selected tasks, to test whether they succeed now
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    sample: Option<u32>,
    /// Make N of the selected tasks due in each period of this length, one after the other: 10/1m
    #[arg(long, value_name = "N/TIME")]
    rate: Option<Rate>,
    /// Also retry tasks that a claimant is processing: first take their runs from it, as `worker release --force` does
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    reason: ReasonArgs,
}

pub(crate) fn run(session: Session, args: &RetryArgs, out: &mut Out) -> anyhow::Result<u8> {
    let data = args.data.as_deref().map(read_data).transpose()?;
    let statuses = retryable(args.force);
    let only = args.selected.statuses(&statuses)?;
    let options = RetryOptions { only: &only, data: data.as_deref(), rate: args.rate, by_force: args.force };
    let mut ctx = session.open()?;
    let mut verb = BulkVerb {
        name: "retry",
        done: "retried",
        statuses,
        take: args.sample.map(|count| usize::try_from(count).unwrap_or(usize::MAX)),
        widen: None,
        may_be_nothing: false,
        can_continue: false,
        act: &mut |ctx, ids, hear| ctx.because(args.reason.text(), |ctx| retry_tasks(ctx, ids, &options, hear)),
        preview: &mut |ctx, ids, hear| preview_retry(ctx, ids, &options, hear),
    };
    selected::run(&mut ctx, &args.selected, &mut verb, out)
}
