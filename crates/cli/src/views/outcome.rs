//! Messages about runs while they are processed.

use std::time::Duration;

use crate::output::Out;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_domain::text::error_words::error_words;
use taskqueue_engine::running::process_run::ProcessReport;
use taskqueue_engine::running::run_listener::{RunListener, RunOutcome};
use taskqueue_views::human;
use taskqueue_views::shell_word::shell_word;

/// Prints with `-v` what happens to each run.
pub(crate) struct Narrator<'a> {
    pub(crate) out: &'a mut Out,
}

impl RunListener for Narrator<'_> {
    fn stopping(&mut self, runs: &[RunId], wait: Duration) {
        say_stopping(runs, wait, self.out);
    }

    fn claimed(&mut self, run: &ClaimedRun) {
        let text =
            format!("run {} (task {}, class {}, attempt {}) started", run.run_id, run.task_id, run.class, run.attempt);
        self.out.about(run, |out| out.say_verbose(&text));
    }

    fn lacks_room(&mut self, why: &str, slots: usize) {
        say_shortage(why, slots, self.out);
    }

    fn left_behind(&mut self, run: &ClaimedRun, threads: usize, most: usize) {
        let text = left_behind_words(run.run_id, threads, most);
        self.out.about(run, |out| out.warn(&text));
    }

    fn ended(&mut self, run: &ClaimedRun, outcome: &RunOutcome) {
        if !self.out.is_verbose() && !has_trouble(outcome) {
            return;
        }
        self.out.about(run, |out| {
            out.say_verbose(&format!("run {} ended: {}", run.run_id, words(outcome)));
            warn_of_trouble(outcome, &run.class, out);
        });
    }
}

/// Prints nothing if the configuration allows the runs no time to continue.
pub(crate) fn say_stopping(runs: &[RunId], wait: Duration, out: &mut Out) {
    let secs = wait.as_secs();
    match runs {
        _ if wait.is_zero() => {}
        [] => {}
        [run_id] => {
            out.say(&format!("stopping: run {run_id} may continue for {secs} seconds; the next signal ends it"));
        }
        runs => {
            out.say(&format!(
                "stopping: {} runs may continue for {secs} seconds; the next signal ends them",
                runs.len()
            ));
        }
    }
}

/// Reports that this runner cannot start as many handlers as requested.
pub(crate) fn say_shortage(why: &str, slots: usize, out: &mut Out) {
    let next = match slots {
        0 => "starts no more runs for now".to_owned(),
        1 => "continues with 1 run at a time for now".to_owned(),
        _ => format!("continues with {slots} runs at a time for now"),
    };
    out.warn(&format!(
        "{why}: the run was released, which counts no attempt, and this runner {next}; raise its limits (`ulimit -n`, `ulimit \
         -u`) or lower --slots"
    ));
}

fn left_behind_words(run_id: RunId, threads: usize, most: usize) -> String {
    format!(
        "the handler of run {run_id} did not return when it was asked to stop: its thread is left behind ({threads} of at most \
         {most}); a handler must return soon after ActiveRun::stop_reason returns a reason"
    )
}

fn words(outcome: &RunOutcome) -> String {
    let decision = &outcome.decision;
    match decision.event {
        RunEvent::Succeed => format!("success ({})", decision.rule),
        _ => format!("{} ({})", error_words(&decision.error_code, &decision.error_message), decision.rule),
    }
}

/// Returns true if there is a problem that must be reported even without `-v`.
const fn has_trouble(outcome: &RunOutcome) -> bool {
    outcome.lost_to.is_some()
        || outcome.unended.is_some()
        || outcome.decision.holds_class
        || outcome.decision.slip.is_some()
}

fn warn_of_trouble(outcome: &RunOutcome, class: &str, out: &mut Out) {
    if let Some(found) = &outcome.lost_to {
        out.warn(&format!(
            "the run had the status {found} already; the outcome of its handler is only kept as an event"
        ));
    }
    if let Some(unended) = &outcome.unended {
        out.warn(&format!("the run stays open: {unended}"));
    }
    if let Some(slip) = &outcome.decision.slip {
        out.warn(&format!("class {}: {slip}; ignored", shell_word(class)));
    }
    if outcome.decision.holds_class {
        out.warn(&format!(
            "the class is held on this host: {}; fix it, then run `taskqueue class release {}`",
            outcome.decision.error_message,
            shell_word(class)
        ));
    }
}

/// Reports why a run that this process executed did not succeed.
pub(crate) fn say_failure(outcome: &RunOutcome, class: &str, id: TaskId, out: &mut Out) {
    warn_of_trouble(outcome, class, out);
    if outcome.decision.event != RunEvent::Succeed {
        out.say(&format!("task {id}: {}; `taskqueue status {id}` shows what happens next", words(outcome)));
    }
}

/// Prints a message during a wait, while the output is lent to the listener.
pub(crate) fn tell_at_once(text: &str) {
    crate::output::tell_stderr(text);
}

/// Reports that runs which the user started here are asked to end by the first signal; they may use the grace of their class.
pub(crate) fn tell_asked_to_end(runs: &[RunId]) {
    for run_id in runs {
        tell_at_once(&format!("stopping: run {run_id} was asked to end; the next signal kills it within 2 seconds"));
    }
}

/// Reports what was processed. Warns that outcomes would be lost if the database became unreachable, and that a hook failed.
pub(crate) fn tell_processed(report: &ProcessReport, out: &mut Out) {
    if let Some(problem) = &report.spool_problem {
        out.warn(&format!(
            "outcomes cannot be saved on the local disk before they are recorded: {problem}; `spool` in the configuration sets \
             another directory"
        ));
    }
    if let Some(problem) = &report.hook_problem {
        out.warn(problem);
    }
    out.say_verbose(&report_words(report));
}

/// Returns what `process-run` did, as text.
fn report_words(report: &ProcessReport) -> String {
    if let Some((in_use, limit)) = report.limit_reached {
        return format!("runner limit reached ({in_use} of {limit} slots in use); nothing processed");
    }
    if report.processed == 0 {
        return "no run is waiting".to_owned();
    }
    let runs = human::plural(report.processed, "run");
    format!("{runs} processed: {} succeeded{}", report.succeeded, other_ends(report))
}

/// Returns how many runs did not succeed: `, 2 failed, 1 released`.
pub(crate) fn other_ends(report: &ProcessReport) -> String {
    let ends = [(report.failed, "failed"), (report.released, "released"), (report.cancelled, "cancelled")];
    ends.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!(", {count} {what}")).collect()
}
