//! Runs that neither end nor report: words, and the command that ends them.

use chrono::TimeDelta;

use crate::human::distance;
use crate::words::why::holder;
use taskqueue_engine::inspect::diagnosis::hung::HungRun;

/// How many runs are named, and are cancelled by one command.
const NAMED: usize = 10;

/// Formats hung runs: `no report from task 1 of class mail for 20m (process 812 on web1), task 2 …; timeout_secs ends …`.
pub fn silent_words(hung: &[HungRun]) -> String {
    let mut words: Vec<String> = hung.iter().take(NAMED).map(run_words).collect();
    if hung.len() > NAMED {
        words.push(format!("and {} more", hung.len() - NAMED));
    }
    let timeout = hung.first().map_or_else(String::new, |first| {
        let timeout = distance(TimeDelta::seconds(first.timeout_secs));
        format!("; timeout_secs ends a run of class {} after {timeout} without a report", first.class)
    });
    format!("no report from {}{timeout}", words.join(", "))
}

fn run_words(run: &HungRun) -> String {
    let who = holder(run.claimant.as_deref(), run.process_id, &run.host);
    let silent = distance(TimeDelta::seconds(run.silent_secs));
    format!("task {} of class {} for {silent} ({who})", run.task_id, run.class)
}

/// Returns the command that ends them, or that shows the runners if none of the runs hangs.
pub fn cancel_hung(hung: &[HungRun]) -> String {
    let ids: Vec<String> = hung.iter().take(NAMED).map(|run| run.task_id.to_string()).collect();
    if ids.is_empty() {
        return "taskqueue runner".to_owned();
    }
    format!("taskqueue cancel {} --reason hangs", ids.join(" "))
}
