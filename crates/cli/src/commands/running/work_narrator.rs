//! The messages of `work`: for the user, with `-v` for each run, and for the service manager.

use std::time::Duration;

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use crate::commands::running::work_metrics::WorkMetrics;
use crate::commands::running::work_service::Service;
use crate::output::Out;
use crate::session::{Reloaded, Reloader};
use crate::views::outcome::{Narrator, other_ends, say_shortage, say_stopping};
use taskqueue_domain::task::ids::{RunId, RunnerId};
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_engine::running::process_run::ProcessReport;
use taskqueue_engine::running::run_listener::{RunListener, RunOutcome};
use taskqueue_engine::work::{Reconfiguration, WorkListener};
use taskqueue_engine::{EngineError, ReloadSignal};

/// Receives notifications about the worker and its runs, and reloads the configuration.
pub(crate) struct WorkNarrator<'a> {
    out: &'a mut Out,
    bar: ProgressBar,
    service: Service,
    reload: ReloadSignal,
    reloader: Reloader,
    metrics: WorkMetrics,
}

impl<'a> WorkNarrator<'a> {
    pub(crate) fn new(
        out: &'a mut Out,
        service: Service,
        reload: ReloadSignal,
        reloader: Reloader,
        metrics: WorkMetrics,
    ) -> Self {
        Self { bar: progress_line(out), out, service, reload, reloader, metrics }
    }

    /// Reports that the worker ends.
    pub(crate) fn finish(mut self) {
        self.service.stopping();
        self.bar.finish_and_clear();
    }

    fn say(&mut self, text: &str) {
        let (bar, out) = (&self.bar, &mut self.out);
        bar.suspend(|| out.say(text));
    }

    fn warn(&mut self, text: &str) {
        let (bar, out) = (&self.bar, &mut self.out);
        bar.suspend(|| out.warn(text));
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

    fn lacks_room(&mut self, why: &str, slots: usize) {
        let (bar, out) = (&self.bar, &mut self.out);
        bar.suspend(|| say_shortage(why, slots, out));
    }

    fn left_behind(&mut self, run: &ClaimedRun, threads: usize, most: usize) {
        let (bar, out) = (&self.bar, &mut self.out);
        bar.suspend(|| Narrator { out }.left_behind(run, threads, most));
    }

    fn ended(&mut self, run: &ClaimedRun, outcome: &RunOutcome) {
        let (bar, out) = (&self.bar, &mut self.out);
        bar.suspend(|| Narrator { out }.ended(run, outcome));
    }
}

impl WorkListener for WorkNarrator<'_> {
    fn waits_for_slots(&mut self, in_use: i64, limit: i64) {
        self.say(&format!("runner limit reached ({in_use} of {limit} slots in use); waiting for free slots"));
    }

    fn has_fewer_slots(&mut self, wanted: usize, slots: usize, why: &str) {
        self.warn(&format!("working with {slots} of {wanted} slots: {why}"));
    }

    fn lost_database(&mut self, problem: &EngineError) {
        self.service.lost_database(problem);
        self.say(&format!("the database is unavailable: {problem}; retrying"));
    }

    fn found_database(&mut self) {
        self.service.found_database();
    }

    fn not_recorded(&mut self, run: &ClaimedRun, problem: &EngineError) {
        let text = format!("the end of run {} could not be recorded: {problem}", run.run_id);
        let (bar, out) = (&self.bar, &mut self.out);
        bar.suspend(|| out.about(run, |out| out.warn(&text)));
    }

    fn is_too_large(&mut self, used_bytes: u64, most_bytes: u64) {
        let (used, most) = (HumanBytes(used_bytes), HumanBytes(most_bytes));
        self.say(&format!(
            "this worker uses {used} of memory, more than --max-rss {most}: it exits when its runs in progress have ended"
        ));
    }

    fn registered(&mut self, runner_id: RunnerId) {
        self.service.registered();
        self.out.of_runner(runner_id);
        self.out.say_verbose(&format!("working as runner {runner_id}"));
    }

    fn looked(&mut self, report: &ProcessReport, working: usize) {
        self.service.looked(report, working);
        if !self.bar.is_hidden() {
            self.bar.set_message(line(report, working));
            self.bar.tick();
        }
    }

    fn reconfiguration(&mut self) -> Option<Reconfiguration> {
        if !self.reload.take() {
            return None;
        }
        self.service.reloading();
        match self.reloader.read() {
            Ok(Reloaded { taken, metrics, for_next_start }) => {
                let (bar, out) = (&self.bar, &mut self.out);
                bar.suspend(|| self.metrics.change(metrics, out));
                if !for_next_start.is_empty() {
                    self.warn(&format!("changes of {} take effect at the next start", for_next_start.join(" and ")));
                }
                Some(taken)
            }
            Err(problem) => {
                self.warn(&format!("the new configuration was not applied, the old one remains: {problem}"));
                self.service.reloaded(Some(problem.to_string()));
                None
            }
        }
    }

    fn reconfigured(&mut self) {
        self.service.reloaded(None);
        self.say("the configuration was reloaded");
    }

    fn pulse(&self) -> Box<dyn Fn() + Send> {
        self.service.pulse()
    }
}

/// Returns a progress line on a terminal; a hidden one without a terminal, or if every run is printed.
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

fn line(report: &ProcessReport, working: usize) -> String {
    format!("{working} working, {} succeeded{}", report.succeeded, other_ends(report))
}
