//! The tasks at the other end of a dependency, for display.

use crate::human::plural;
use taskqueue_domain::run::status::{Stored, TaskStatus};
use taskqueue_domain::task::dependencies::LinkedTask;
use taskqueue_domain::task::ids::TaskId;

/// How many tasks are named in a line.
const NAMED: usize = 20;

/// Returns the first prerequisites, and how many more there are.
pub fn waits_for(count: i32, on: &[LinkedTask]) -> String {
    if on.is_empty() {
        return format!("waits for {}", plural(count, "other task"));
    }
    let named: Vec<String> = on.iter().map(words).collect();
    let more = count.saturating_sub(i32::try_from(on.len()).unwrap_or(i32::MAX));
    let rest = if more > 0 { format!(" and {}", plural(more, "more task")) } else { String::new() };
    format!("waits for {}{rest}", named.join(", "))
}

/// Returns a line about these tasks, unfinished ones first; `None` if there are none.
pub fn linked_line(title: &str, tasks: &[LinkedTask]) -> Option<String> {
    let mut tasks: Vec<&LinkedTask> = tasks.iter().collect();
    tasks.sort_by_key(|task| task.is_satisfied);
    let named: Vec<String> = tasks.iter().take(NAMED).map(|task| words(task)).collect();
    let rest = if tasks.len() > NAMED { ", …" } else { "" };
    (!tasks.is_empty()).then(|| format!("  {title:<13}{}{rest}", named.join(", ")))
}

fn words(task: &LinkedTask) -> String {
    let any_end = if task.needs_success { "" } else { "; any end is enough" };
    match &task.status {
        None => format!("{} (deleted{any_end})", task.id),
        Some(Stored::Known(status @ (TaskStatus::Failed | TaskStatus::Timeout))) if task.is_settled => {
            format!("{} ({status}, not retried{any_end})", task.id)
        }
        Some(status) => format!("{} ({status}{any_end})", task.id),
    }
}

/// Returns how many runs with a limit key may be in progress at once, and which tasks have its slots.
pub fn key_words(key: &str, max_running: i32, holders: &[TaskId]) -> String {
    let ids: Vec<String> = holders.iter().map(ToString::to_string).collect();
    let have = match ids.as_slice() {
        [] => String::new(),
        [id] => format!(", and task {id} has the slot"),
        ids => format!(", and tasks {} have slots", ids.join(", ")),
    };
    format!("limit key {key} allows {} at a time{have}", plural(max_running, "run"))
}

/// Returns what prevents the next task of a schedule whose unique key another task has.
pub fn waits_for_key(holder: TaskId) -> String {
    format!("waits for task {holder}, which has its key, to finish")
}
