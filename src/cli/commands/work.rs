//! `taskqueue work`

use std::num::NonZeroUsize;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::outcome::{Narrator, report_words, say_stopping, warn_of_hook, warn_of_spool};
use super::task_options::duration_option;
use crate::cli::error::DONE;
use crate::cli::output::Out;
use crate::cli::session::Session;
use crate::domain::ids::{RunId, RunnerId};
use crate::domain::records::ClaimedRun;
use crate::engine::execute::{RunListener, RunOutcome};
use crate::engine::process_run::ProcessReport;
use crate::engine::work::{WorkListener, WorkOptions, work};
use crate::engine::{EngineError, StopSignals, Stream};

/// Stay, and process runs as they become due, several at once
///
/// Creates the due runs by itself and mixes freely with `tick` and `process-run` on the same store. The first signal lets the
/// runs in progress go on for `stop_wait_secs` of the configuration, the second ends them. Exit status 0, also after a signal.
#[derive(Debug, Args)]
pub(crate) struct WorkArgs {
    /// Execute so many runs at once [default: the number of processors]
    #[arg(long, value_name = "N")]
    slots: Option<NonZeroUsize>,
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
    /// By which name `runners` shows it and `pause`, `drain` and `stop` find it [default: host and process number]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl WorkArgs {
    fn options(&self, stop_wait: Duration) -> anyhow::Result<WorkOptions> {
        let slots = self.slots.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
        Ok(WorkOptions {
            slots,
            classes: self.classes.clone(),
            max_runs: self.max_runs,
            max_time: duration_option("--max-time", self.max_time.as_deref())?,
            idle_exit: duration_option("--idle-exit", self.idle_exit.as_deref())?,
            stop_wait,
        })
    }
}

pub(crate) fn run(session: Session, args: &WorkArgs, out: &mut Out) -> anyhow::Result<u8> {
    let options = args.options(session.config.stop_wait)?;
    let stop = StopSignals::install()?;
    let mut ctx = session.open_or_make()?;
    if let Some(name) = &args.name {
        ctx.name_runner(name)?;
    }
    let mut narrator = WorkNarrator { bar: progress_line(out), out };
    let report = work(&mut ctx, &options, &stop, &mut narrator);
    narrator.bar.finish_and_clear();
    let report = report?;
    if out.is_json() {
        out.json(&report)?;
    }
    warn_of_spool(&report, out);
    warn_of_hook(&report, out);
    out.say_verbose(&report_words(&report));
    Ok(DONE)
}

/// What happens, for somebody who sits there; nothing where nobody does, or where every run is told.
fn progress_line(out: &Out) -> ProgressBar {
    if !out.is_watched() || out.is_json() || out.is_verbose() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        bar.set_style(style);
    }
    bar
}

/// Says what happens to the worker, and with `-v` to each run.
struct WorkNarrator<'a> {
    out: &'a mut Out,
    bar: ProgressBar,
}

impl WorkNarrator<'_> {
    fn say(&mut self, text: &str) {
        let (bar, out) = (&self.bar, &mut self.out);
        bar.suspend(|| out.say(text));
    }
}

impl RunListener for WorkNarrator<'_> {
    fn stopping(&mut self, runs: &[RunId], wait: Duration) {
        let (bar, out) = (&self.bar, &mut self.out);
        bar.suspend(|| say_stopping(runs, wait, out));
    }

    fn claimed(&mut self, run: &ClaimedRun) {
        if self.out.is_verbose() {
            Narrator { out: self.out }.claimed(run);
        }
    }

    fn output(&mut self, _stream: Stream, _bytes: &[u8]) {}

    fn ended(&mut self, run: &ClaimedRun, outcome: &RunOutcome) {
        let (bar, out) = (&self.bar, &mut self.out);
        bar.suspend(|| Narrator { out }.ended(run, outcome));
    }
}

impl WorkListener for WorkNarrator<'_> {
    fn waits_for_slots(&mut self, in_use: i64, limit: i64) {
        self.say(&format!("runner limit reached ({in_use} of {limit} slots in use); waiting for room"));
    }

    fn lost_database(&mut self, problem: &EngineError) {
        self.say(&format!("the database is away: {problem}; trying again"));
    }

    fn not_recorded(&mut self, run: &ClaimedRun, problem: &EngineError) {
        let (bar, out, run_id) = (&self.bar, &mut self.out, run.run_id);
        bar.suspend(|| out.warn(&format!("the end of run {run_id} could not be recorded: {problem}")));
    }

    fn registered(&mut self, runner_id: RunnerId) {
        self.out.say_verbose(&format!("working as runner {runner_id}"));
    }

    fn looked(&mut self, report: &ProcessReport, working: usize) {
        if !self.bar.is_hidden() {
            self.bar.set_message(line(report, working));
            self.bar.tick();
        }
    }
}

fn line(report: &ProcessReport, working: usize) -> String {
    let mut line = format!("{working} working, {} succeeded", report.succeeded);
    for (count, what) in [(report.failed, "failed"), (report.released, "given back"), (report.cancelled, "cancelled")] {
        if count > 0 {
            line.push_str(&format!(", {count} {what}"));
        }
    }
    line
}
