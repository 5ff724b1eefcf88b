//! `taskqueue tick`

use clap::Args;

use crate::commands::running::create_runs::{say_report, warn_of_report};
use crate::commands::running::process_run::RepeatArgs;
use crate::error::{DONE, INTERRUPTED};
use crate::output::Out;
use crate::output::log::LogFormat;
use crate::session::Session;
use crate::views::final_failures::failure_printer;
use crate::views::outcome::{Narrator, tell_processed};
use taskqueue_engine::StopSignals;
use taskqueue_engine::running::tick::tick;
use taskqueue_views::words::standstill::{standstill_remedy, standstill_words};

/// Create runs for due tasks and process them, from one crontab line
///
/// The crontab line `* * * * * taskqueue tick` is enough; overlapping calls are safe. It exits when no run waits, and starts none
/// after --max-time. It prints nothing if there was nothing to do. It prints a warning if tasks are due and a pause blocks all of
/// them. It also prints one warning for each task that will not be retried, unless a host has `[notify]` in its configuration.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  taskqueue tick\n  taskqueue tick -v --max-time 10m")]
pub(crate) struct TickArgs {
    /// Process at most N runs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_runs: Option<u64>,
    /// Start no run after this time
    #[arg(long, value_name = "DURATION", default_value = "55s")]
    max_time: String,
    /// Name of the runner, for `runner`, `pause`, `drain` and `stop` [default: host and process number]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Format of the messages on standard error; in the journal of systemd, they have fields
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

pub(crate) fn run(session: Session, args: &TickArgs, out: &mut Out) -> anyhow::Result<u8> {
    out.begin_log(args.log_format)?;
    let repeat = RepeatArgs { drain: true, max_runs: args.max_runs, max_time: Some(args.max_time.clone()) };
    let options = repeat.options(session.config.stop_wait)?;
    let stop = StopSignals::install()?;
    session.end_statements_on(&stop, options.stop_wait);
    let Some(mut ctx) = session.open_runner(args.name.as_deref(), &stop, out)? else { return Ok(INTERRUPTED) };
    ctx.print_failures_with(failure_printer(out));
    let report = tick(&mut ctx, &options, &stop, &mut Narrator { out })?;
    out.json_if_asked(&report)?;
    if out.is_verbose() {
        say_report(&report.created, out);
    } else {
        warn_of_report(&report.created, out);
    }
    for standstill in &report.standstills {
        let (words, remedy) = (standstill_words(standstill, ctx.now()?), standstill_remedy(standstill));
        out.warn(&format!("{words}; try {remedy}"));
    }
    tell_processed(&report.processed, out);
    Ok(if stop.is_stopping() { INTERRUPTED } else { DONE })
}
