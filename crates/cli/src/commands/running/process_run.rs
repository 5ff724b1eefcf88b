//! `taskqueue process-run`

use std::time::Duration;

use clap::Args;

use crate::commands::options::task_options::duration_option;
use crate::error::{CliError, DONE, INTERRUPTED};
use crate::output::Out;
use crate::output::log::LogFormat;
use crate::session::Session;
use crate::views::outcome::{Narrator, tell_processed};
use taskqueue_domain::task::ids::RunId;
use taskqueue_engine::StopSignals;
use taskqueue_engine::running::process_run::{ProcessOptions, process_runs};
use taskqueue_views::human::plural;
use taskqueue_views::words::why::is_or_are;

/// Claim the first waiting run and execute it
///
/// If no run waits or the runner limit is reached, it prints nothing and exits with status 0. If you name a run and the runner
/// limit is reached, that is an error with exit status 75. `status` shows the outcome of the task; the exit status does not.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  taskqueue process-run\n  taskqueue process-run --drain --max-time 55s")]
pub(crate) struct ProcessRunArgs {
    /// Process only this run, even if other runs come first
    run_id: Option<RunId>,
    /// Name of the runner, for `runner`, `pause`, `drain` and `stop` [default: host and process number]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    repeat: RepeatArgs,
    /// Format of the messages on standard error; in the journal of systemd, they have fields
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

/// How long it goes on.
#[derive(Debug, Args)]
pub(crate) struct RepeatArgs {
    /// Repeat until no run waits
    #[arg(long, conflicts_with = "run_id")]
    pub(crate) drain: bool,
    /// Repeat for at most N runs
    #[arg(long, value_name = "N", conflicts_with = "run_id", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_runs: Option<u64>,
    /// Repeat, but start no run after this time: 55s, 10m
    #[arg(long, value_name = "DURATION", conflicts_with = "run_id")]
    pub(crate) max_time: Option<String>,
}

impl RepeatArgs {
    pub(crate) fn options(&self, stop_wait: Duration) -> anyhow::Result<ProcessOptions> {
        Ok(ProcessOptions {
            drain: self.drain,
            max_runs: self.max_runs,
            max_time: duration_option("--max-time", self.max_time.as_deref())?,
            stop_wait,
            enters_group: true,
            ..ProcessOptions::default()
        })
    }
}

pub(crate) fn run(session: Session, args: &ProcessRunArgs, out: &mut Out) -> anyhow::Result<u8> {
    out.begin_log(args.log_format)?;
    let options = ProcessOptions { run_id: args.run_id, ..args.repeat.options(session.config.stop_wait)? };
    let stop = StopSignals::install()?;
    session.end_statements_on(&stop, options.stop_wait);
    let Some(mut ctx) = session.open_runner(args.name.as_deref(), &stop, out)? else { return Ok(INTERRUPTED) };
    let report = process_runs(&mut ctx, &options, &stop, &mut Narrator { out })?;
    if let (Some(run_id), Some((in_use, limit))) = (args.run_id, report.limit_reached) {
        let slots = plural(in_use, "runner slot");
        let message =
            format!("run {run_id} is not processed: {slots} {} in use, the limit is {limit}", is_or_are(in_use));
        let hint = "try again later; `taskqueue runner` lists the runners and their tasks";
        return Err(CliError::runner_limit_reached(message).with_hint(hint).into());
    }
    out.json_if_asked(&report)?;
    tell_processed(&report, out);
    Ok(if stop.is_stopping() { INTERRUPTED } else { DONE })
}
