//! `taskqueue retry`

use clap::Args;

use crate::commands::options::reason::ReasonArgs;
use crate::commands::options::selected;
use crate::commands::options::selected::{BulkVerb, SelectedArgs};
use crate::commands::queueing::queue::read_data;
use crate::output::Out;
use crate::session::Session;
use taskqueue_domain::limits::limit::Rate;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_engine::Context;
use taskqueue_engine::change::retry::{RETRYABLE, check_data, preview_retry, retry_at_rate};
use taskqueue_engine::change::selected::OnAnswer;

/// Retry failed, exhausted or quarantined tasks
///
/// The tasks get all their retries again, and their failures and crashes are counted from zero. A failed task that waits for its
/// next attempt is due at once.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue retry 4711\n  taskqueue failures\n  taskqueue retry class=mail.send error=exit:75 --sample 5\n  taskqueue retry class=mail.send error=exit:75 --rate 10/1m --yes\n  taskqueue retry 4711 --data @mended.json"
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
    #[command(flatten)]
    reason: ReasonArgs,
}

pub(crate) fn run(session: Session, args: &RetryArgs, out: &mut Out) -> anyhow::Result<u8> {
    let data = args.data.as_deref().map(read_data).transpose()?;
    let check = |ctx: &mut Context, ids: &[TaskId]| data.as_deref().map_or(Ok(()), |data| check_data(ctx, ids, data));
    let retry = |ctx: &mut Context, ids: &[TaskId], hear: OnAnswer<'_>| {
        check(ctx, ids)?;
        retry_at_rate(ctx, ids, args.rate, data.as_deref(), hear)
    };
    let mut ctx = session.open()?;
    let mut verb = BulkVerb {
        name: "retry",
        done: "retried",
        statuses: RETRYABLE.to_vec(),
        take: args.sample.map(|count| usize::try_from(count).unwrap_or(usize::MAX)),
        widen: None,
        may_be_nothing: false,
        act: &mut |ctx, ids, hear| ctx.because(args.reason.text(), |ctx| retry(ctx, ids, hear)),
        preview: &mut |ctx, ids, hear| {
            check(ctx, ids)?;
            preview_retry(ctx, ids, hear)
        },
    };
    selected::run(&mut ctx, &args.selected, &mut verb, out)
}
