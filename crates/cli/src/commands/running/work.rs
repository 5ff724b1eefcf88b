//! `taskqueue work`

use std::num::NonZeroUsize;
use std::sync::Arc;

use bytesize::ByteSize;
use clap::Args;

use crate::commands::claiming::claim::parse_pattern;
use crate::commands::options::task_options::duration_option;
use crate::commands::running::work_metrics::WorkMetrics;
use crate::commands::running::work_narrator::WorkNarrator;
use crate::commands::running::work_service::Service;
use crate::error::{CliError, DONE};
use crate::output::Out;
use crate::output::log::LogFormat;
use crate::session::Session;
use crate::views::final_failures::failure_printer;
use crate::views::outcome::tell_processed;
use crate::views::unknown_class::{WarnOf, warn_of_unknown_class};
use taskqueue_domain::monitoring::listen_address::ListenAddress;
use taskqueue_engine::config::Config;
use taskqueue_engine::work::{Tally, WorkOptions, raise_limit_of_files, work};
use taskqueue_engine::{ReloadSignal, StopSignals, Supervisor, enter_own_group};
use taskqueue_host::machine::own_memory;

/// Run a worker that processes runs as they become due
///
/// Also creates the runs of due tasks. You can use it together with `tick` and `process-run` on the same store. After the first
/// INT or TERM, runs in progress may continue for `stop_wait_secs` of the configuration; the second one ends them. At HUP it
/// reads the configuration again. The exit status is 0, also after a signal. It prints one warning for each task that will not be
/// retried, unless a host has `[notify]` in its configuration.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue work\n  taskqueue work --slots 4 --class 'mail.*'\n  taskqueue work --metrics 127.0.0.1:9790"
)]
pub(crate) struct WorkArgs {
    /// Execute up to N runs at once [default: `work_slots` of the configuration, else the number of processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    slots: Option<u16>,
    /// Process only runs of this class, or of the classes that match a pattern with `*` and `?`; may be given more than once
    #[arg(long = "class", value_name = "CLASS", value_parser = parse_pattern)]
    classes: Vec<String>,
    /// Exit after N runs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_runs: Option<u64>,
    /// Start no run after this time, and exit: 10m, 8h
    #[arg(long, value_name = "DURATION")]
    max_time: Option<String>,
    /// Exit after this time without work; 0 exits as soon as nothing is left
    #[arg(long, value_name = "DURATION")]
    idle_exit: Option<String>,
    /// If the worker, without its handlers, uses more memory than this, finish the runs in progress and exit: 200M, 200MiB
    #[arg(long, value_name = "SIZE")]
    max_rss: Option<String>,
    /// Name of the worker, for `runner`, `pause`, `drain` and `stop` [default: host and process number]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Serve /metrics and /healthz at this address: 127.0.0.1:9790, unix:/run/taskqueue.sock [default: `metrics` of the
    /// configuration]
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<ListenAddress>,
    /// Format of the messages on standard error; in the journal of systemd, they have fields
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
    own_memory::keep_little();
    if let Err(why) = enter_own_group() {
        out.say_verbose(&format!("no separate control group: {why}"));
    }
    let (stop, reload) = (StopSignals::install_without_hangup()?, ReloadSignal::install()?);
    session.end_statements_on(&stop, options.stop_wait);
    let reloader = session.reloader();
    let configured = session.config.metrics.clone();
    let service = Service::new(session.is_supervised().then(Supervisor::of_environment), &stop);
    let Some(mut ctx) = session.open_runner(args.name.as_deref(), &stop, out)? else { return Ok(DONE) };
    ctx.print_failures_with(failure_printer(out));
    // With a mistyped class, it would wait forever.
    for class in &args.classes {
        warn_of_unknown_class(&mut ctx, class, WarnOf::Any, out)?;
    }
    let metrics = WorkMetrics::begin(&ctx, &options.tally, args.metrics.clone(), configured, out)?;
    let mut narrator = WorkNarrator::new(out, service, reload, reloader, metrics);
    let report = work(&mut ctx, &options, &stop, &mut narrator);
    narrator.finish();
    let report = report?;
    out.json_if_asked(&report)?;
    tell_processed(&report, out);
    Ok(DONE)
}

/// Parses a size in bytes.
fn size_option(name: &str, text: Option<&str>) -> Result<Option<u64>, CliError> {
    let Some(text) = text else { return Ok(None) };
    let refused = || {
        CliError::usage(format!("{name}: {text:?} is not a memory size"))
            .with_hint("write bytes, or a number with k, M, G, KiB, MiB or GiB: 200M")
    };
    let bytes = text.parse::<ByteSize>().map_err(|_| refused())?.as_u64();
    if bytes == 0 { Err(refused()) } else { Ok(Some(bytes)) }
}
