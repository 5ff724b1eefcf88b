//! `taskqueue work`

use std::num::NonZeroUsize;
use std::sync::Arc;

use bytesize::ByteSize;
use clap::Args;

use super::final_failures::failure_printer;
use super::outcome::{report_words, warn_of_hook, warn_of_spool};
use super::task_options::duration_option;
use super::unknown_class::{WarnOf, warn_of_unknown_class};
use super::work_metrics::WorkMetrics;
use super::work_narrator::WorkNarrator;
use super::work_service::Service;
use crate::error::{CliError, DONE};
use crate::output::Out;
use crate::output::log::LogFormat;
use crate::session::Session;
use taskqueue_domain::listen_address::ListenAddress;
use taskqueue_engine::config::Config;
use taskqueue_engine::work::{Tally, WorkOptions, raise_limit_of_files, work};
use taskqueue_engine::{ReloadSignal, StopSignals, Supervisor, enter_own_group};

/// Run a worker that processes runs as they become due
///
/// Creates the due runs by itself and mixes freely with `tick` and `process-run` on the same store. The first INT or TERM
/// lets the runs in progress go on for `stop_wait_secs` of the configuration, the second ends them. HUP has it read the
/// configuration again. Exit status 0, also after a signal. Prints each task that will not be retried once, as a warning, unless a
/// host has `[notify]`.
#[derive(Debug, Args)]
pub(crate) struct WorkArgs {
    /// Execute so many runs at once [default: `work_slots` of the configuration, else the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    slots: Option<u16>,
    /// Only runs of this class, or of those that a pattern with `*` and `?` matches; may be given several times
    #[arg(long = "class", value_name = "CLASS")]
    classes: Vec<String>,
    /// End after N runs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_runs: Option<u64>,
    /// Start no run after this time, and end: 10m, 8h
    #[arg(long, value_name = "DURATION")]
    max_time: Option<String>,
    /// End when there was nothing to do for so long; 0 ends as soon as nothing is left
    #[arg(long, value_name = "DURATION")]
    idle_exit: Option<String>,
    /// End, once the runs in progress have ended, when the worker itself, without its handlers, uses more memory: 200M, 200MiB
    #[arg(long, value_name = "SIZE")]
    max_rss: Option<String>,
    /// By which name `runners` shows it and `pause`, `drain` and `stop` find it [default: host and process number]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Answer to GET /metrics and /healthz there: 127.0.0.1:9790, unix:/run/taskqueue.sock [default: `metrics` of the configuration]
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<ListenAddress>,
    /// How standard error is written; in the journal, its lines have fields
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
}

impl WorkArgs {
    fn options(&self, config: &Config) -> anyhow::Result<WorkOptions> {
        let processors = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Ok(WorkOptions {
            slots: self.slots.map(usize::from).or(config.work_slots).unwrap_or_else(processors),
            classes: self.classes.clone(),
            max_runs: self.max_runs,
            max_time: duration_option("--max-time", self.max_time.as_deref())?,
            idle_exit: duration_option("--idle-exit", self.idle_exit.as_deref())?,
            max_rss_bytes: size_option("--max-rss", self.max_rss.as_deref())?,
            stop_wait: config.stop_wait,
            ends_when_blocked: true,
            tally: Arc::<Tally>::default(),
        })
    }
}

pub(crate) fn run(session: Session, args: &WorkArgs, out: &mut Out) -> anyhow::Result<u8> {
    out.begin_log(args.log_format)?;
    let options = args.options(&session.config)?;
    raise_limit_of_files(options.slots);
    if let Err(why) = enter_own_group() {
        out.say_verbose(&format!("no control group of its own: {why}"));
    }
    let (stop, reload) = (StopSignals::install_without_hangup()?, ReloadSignal::install()?);
    session.end_statements_on(&stop, options.stop_wait);
    let reloader = session.reloader();
    let configured = session.config.metrics.clone();
    let service = Service::new(session.is_supervised().then(Supervisor::of_environment), &stop);
    let mut ctx = match session.stopped_by(&stop, out).open_or_make() {
        Err(_) if stop.is_stopping() => return Ok(DONE),
        opened => opened?,
    };
    ctx.print_failures_with(failure_printer(out));
    if let Some(name) = &args.name {
        ctx.name_runner(name)?;
    }
    // A name that is mistyped would have it wait for ever.
    for class in &args.classes {
        warn_of_unknown_class(&mut ctx, class, WarnOf::Any, out)?;
    }
    let metrics = WorkMetrics::begin(&ctx, &options.tally, args.metrics.clone(), configured, out)?;
    let mut narrator = WorkNarrator::new(out, service, reload, reloader, metrics);
    let report = work(&mut ctx, &options, &stop, &mut narrator);
    narrator.finish();
    let report = report?;
    if out.is_json() {
        out.json(&report)?;
    }
    warn_of_spool(&report, out);
    warn_of_hook(&report, out);
    out.say_verbose(&report_words(&report));
    Ok(DONE)
}

/// In bytes.
fn size_option(name: &str, text: Option<&str>) -> Result<Option<u64>, CliError> {
    let Some(text) = text else { return Ok(None) };
    let refused = || {
        CliError::usage(format!("{name}: {text:?} is no size of memory"))
            .with_hint("bytes, or a number with k, M, G, KiB, MiB or GiB: 200M")
    };
    let bytes = text.parse::<ByteSize>().map_err(|_| refused())?.as_u64();
    if bytes == 0 { Err(refused()) } else { Ok(Some(bytes)) }
}
