//! The expected content of the tables after a step, formatted by the model like `Real::state` formats the real content.

use super::commands::CLASSES;
use super::reference::Model;

/// Returns the expected content of the tables.
pub fn state_of(model: &Model) -> Vec<String> {
    let tasks = model.tasks.iter().enumerate().map(|(index, task)| {
        format!(
            "task {} {} {}/{} crashed {}{} {} run {} waits for {}{}",
            task.status,
            task.priority,
            task.failed_retries,
            task.max_retries,
            task.crashes,
            if task.is_quarantined { " quarantined" } else { "" },
            task.attempts,
            task.open_run.map_or(0, |run| run + 1),
            task.waits_for.len(),
            if model.is_due(index) { " due" } else { "" }
        )
    });
    let runs = model.runs.iter().map(|run| {
        let task = &model.tasks[run.task];
        let suffix = match run.status {
            "scheduled" if run.has_key_slot => " open slot",
            "scheduled" => " open",
            "processing" if run.is_unwanted && run.has_key_slot => " open slot unwanted leased",
            "processing" if run.is_unwanted => " open unwanted leased",
            "processing" if run.has_key_slot => " open slot leased",
            "processing" => " open leased",
            _ if run.is_unwanted => " unwanted",
            _ => "",
        };
        let (class, priority) = (CLASSES[task.class], run.priority);
        let by = run.claimant.map(|number| format!(" by c{number}")).unwrap_or_default();
        format!(
            "run of {} {class} {priority} {} {} {}{suffix}{by}",
            run.task + 1,
            run.attempt,
            run.status,
            run.error_code
        )
    });
    let runners = model
        .runners
        .iter()
        .map(|runner| format!("runner {}{}", runner.slots, if runner.is_finished { " finished" } else { "" }));
    let rejections = model.rejections.iter().map(|((task, by), rejection)| {
        format!(
            "task {} not for c{by} {}{}",
            task + 1,
            rejection.timeouts,
            if rejection.is_final { " final" } else { "" }
        )
    });
    tasks.chain(runs).chain(runners).chain(rejections).collect()
}
