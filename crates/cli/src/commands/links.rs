//! How the tasks at the other side of a dependency look.

use crate::output::human::plural;
use taskqueue_domain::run::status::{Stored, TaskStatus};
use taskqueue_domain::task::dependencies::LinkedTask;

/// Tasks that are named in one line.
const NAMED: usize = 20;

/// The first of the tasks for which one waits, and how many more there are.
pub(super) fn waits_for(count: i32, on: &[LinkedTask]) -> String {
    if on.is_empty() {
        return format!("waits for {}", plural(count, "other task"));
    }
    let named: Vec<String> = on.iter().map(words).collect();
    let more = count.saturating_sub(i32::try_from(on.len()).unwrap_or(i32::MAX));
    let rest = if more > 0 { format!(" and {}", plural(more, "more task")) } else { String::new() };
    format!("waits for {}{rest}", named.join(", "))
}

/// A line of the block of one task, those that still keep somebody waiting first; none where there are no such tasks.
pub(super) fn linked_line(title: &str, tasks: &[LinkedTask]) -> Option<String> {
    let mut tasks: Vec<&LinkedTask> = tasks.iter().collect();
    tasks.sort_by_key(|task| task.is_satisfied);
    let named: Vec<String> = tasks.iter().take(NAMED).map(|task| words(task)).collect();
    let rest = if tasks.len() > NAMED { ", …" } else { "" };
    (!tasks.is_empty()).then(|| format!("  {title:<13}{}{rest}", named.join(", ")))
}

fn words(task: &LinkedTask) -> String {
    match &task.status {
        None => format!("{} (gone)", task.id),
        Some(Stored::Known(status @ (TaskStatus::Failed | TaskStatus::Timeout))) if task.is_settled => {
            format!("{} ({status}, not tried again)", task.id)
        }
        Some(status) => format!("{} ({status})", task.id),
    }
}
