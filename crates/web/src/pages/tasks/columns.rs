//! Lists of tasks, and the columns that they may have.

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use crate::pages::parts::{cards, maybe_time, run_time, schedule_link, task_link, task_status, text, time};
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_engine::inspect::status::{Reason, TaskLine};
use taskqueue_views::words::what::what;
use taskqueue_views::words::why::{failed_attempts, note};

/// A column of a list.
pub(crate) struct Column {
    /// Its name in an address.
    pub(crate) name: &'static str,
    head: &'static str,
    cell: fn(&TaskLine, DateTime<Utc>) -> Markup,
    /// Whether its cells have sentences.
    has_words: bool,
}

const fn column(name: &'static str, head: &'static str, cell: fn(&TaskLine, DateTime<Utc>) -> Markup) -> Column {
    Column { name, head, cell, has_words: false }
}

/// Every column; those of a usual list come first.
pub(crate) const COLUMNS: &[Column] = &[
    column("task", "Task", |line, _| task_link(line.task.id)),
    column("class", "Class", |line, _| text(&line.task.class)),
    column("what", "What", |line, _| text(what(&line.task))),
    column("status", "Status", status),
    column("when", "When", when),
    column("failed", "Failed", failed),
    Column { name: "why", head: "Why", cell: why, has_words: true },
    column("name", "Name", |line, _| maybe_text(line.task.name.as_deref())),
    column("tag", "Tag", |line, _| maybe_text(line.task.tag.as_deref())),
    column("key", "Unique key", |line, _| maybe_text(line.task.unique_key.as_deref())),
    column("limit-key", "Limit key", |line, _| maybe_text(line.task.limit_key.as_deref())),
    column("priority", "Priority", |line, _| html! { (line.task.priority) }),
    column("queued", "Queued", |line, now| time(line.task.queued_on, now)),
    column("by", "By", |line, _| text(&line.task.queued_by)),
    column("due", "Due", |line, now| time(line.task.due_from(), now)),
    column("attempts", "Attempts", |line, _| html! { (line.task.attempts) }),
    column("started", "Started", |line, now| maybe_time(line.last_run.as_ref().and_then(|run| run.started_on), now)),
    column("took", "Took", took),
    column("host", "Host", |line, _| maybe_text(line.last_run.as_ref().map(|run| run.host.as_str()))),
    column("schedule", "Schedule", |line, _| {
        html! { @if let Some(schedule) = &line.task.schedule { (schedule_link(schedule.id)) } }
    }),
    column("parent", "Parent", |line, _| html! { @if let Some(parent) = line.task.parent_id { (task_link(parent)) } }),
];
/// How many columns a usual list has.
const USUAL: usize = 7;

/// Returns the columns with these names, each once; the usual ones if none is named.
pub(crate) fn chosen(names: &str) -> Result<Vec<&'static Column>, String> {
    let mut columns: Vec<&Column> = Vec::new();
    for name in names.split([',', ' ']).filter(|name| !name.is_empty()) {
        let all = || COLUMNS.iter().map(|column| column.name).collect::<Vec<_>>().join(", ");
        let found = COLUMNS.iter().find(|column| column.name == name);
        let column = found.ok_or_else(|| format!("\"{name}\" is not a column; the columns are {}", all()))?;
        if !columns.iter().any(|known| known.name == name) {
            columns.push(column);
        }
    }
    Ok(if columns.is_empty() { usual() } else { columns })
}

fn usual() -> Vec<&'static Column> {
    COLUMNS.iter().take(USUAL).collect()
}

/// A list of tasks with these columns. On a narrow screen, values have labels if the columns are not the usual ones.
pub(crate) fn table_of(columns: &[&Column], lines: &[TaskLine], now: DateTime<Utc>) -> Markup {
    let is_usual = columns.iter().map(|column| column.name).eq(usual().iter().map(|column| column.name));
    let rows = html! {
        @for line in lines {
            tr { @for column in columns { td.words[column.has_words] data-label=[(!is_usual).then_some(column.head)] { ((column.cell)(line, now)) } } }
        }
    };
    cards(columns.iter().map(|column| column.head), &rows)
}

/// A list of tasks with the usual columns.
pub(crate) fn task_table(lines: &[TaskLine], now: DateTime<Utc>) -> Markup {
    table_of(&usual(), lines, now)
}

fn maybe_text(value: Option<&str>) -> Markup {
    html! { @if let Some(value) = value { (text(value)) } }
}

fn status(line: &TaskLine, _: DateTime<Utc>) -> Markup {
    let run = line.last_run.as_ref().filter(|_| line.task.status.is(TaskStatus::Processing));
    let percents = run.map_or(0, |run| run.percents_completed);
    html! {
        (task_status(&line.task.status))
        @if percents > 0 {
            " " progress max="100" value=(percents) aria-label="Progress" { (percents) "%" } " " (percents) "%"
        }
    }
}

fn when(line: &TaskLine, now: DateTime<Utc>) -> Markup {
    match (&line.last_run, &line.reason) {
        (Some(run), Reason::Running { .. } | Reason::Lost { .. }) => {
            html! { "started " (maybe_time(run.started_on, now)) }
        }
        (_, Reason::NotYet { on, .. }) => html! { "due " (time(*on, now)) },
        (Some(run), _) if run.finished_on.is_some() => html! { "ended " (maybe_time(run.finished_on, now)) },
        // It has ended without a run.
        _ if line.task.is_settled() => html! { "ended " (time(line.task.updated_on, now)) },
        _ => html! { "queued " (time(line.task.queued_on, now)) },
    }
}

fn failed(line: &TaskLine, _: DateTime<Utc>) -> Markup {
    html! { (failed_attempts(&line.task, &line.reason)) "/" (line.allowed_retries) }
}

fn why(line: &TaskLine, now: DateTime<Utc>) -> Markup {
    text(note(&line.reason, line.last_run.as_ref(), now))
}

fn took(line: &TaskLine, now: DateTime<Utc>) -> Markup {
    html! { @if let Some(run) = &line.last_run { (run_time(run, now)) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Result<Vec<&'static str>, String> {
        chosen(text).map(|columns| columns.iter().map(|column| column.name).collect())
    }

    #[test]
    fn columns_are_named_in_any_order_and_a_wrong_name_is_an_error() {
        assert_eq!(names("tag, task,tag tag"), Ok(vec!["tag", "task"]));
        assert_eq!(names(" "), Ok(vec!["task", "class", "what", "status", "when", "failed", "why"]));
        let error = names("task tags").unwrap_err();
        assert!(error.starts_with("\"tags\" is not a column; the columns are task, class,"), "{error}");
    }
}
