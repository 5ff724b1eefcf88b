//! `GET /tasks/{id}`: everything about one task, the answer of `explain` first.

use axum::extract::Path;
use chrono::{DateTime, TimeDelta, Utc};
use maud::{Markup, html};

use crate::app::Caller;
use crate::logins::login::Login;
use crate::pages::graph::graph;
use crate::pages::parts::{
    answer, button, cards, maybe_time, run_status, run_time, schedule_link, task_link, task_status, text, time,
};
use crate::pages::tasks::ansi::coloured;
use crate::pages::tasks::json_tree::json;
use crate::pages::tasks::time_line::time_line;
use crate::pages::{Page, Refresh, page as whole_page};
use taskqueue_domain::limits::scope::Scope;
use taskqueue_domain::run::status::{Stored, TaskStatus};
use taskqueue_domain::task::dependencies::LinkedTask;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::{Run, RunOutput, Task};
use taskqueue_domain::text::error_words::error_words;
use taskqueue_engine::change::edit::editable;
use taskqueue_engine::inspect::diagnosis::explain::{Explanation, explain_task};
use taskqueue_engine::inspect::status::{Event, Reason, TaskDetail, detail_with_last_output};
use taskqueue_views::answer::{answer as answer_of, answer_command};
use taskqueue_views::human::{plural, short_distance};
use taskqueue_views::words::event_words::event_words;
use taskqueue_views::words::what::what;
use taskqueue_views::words::why::failed_attempts;

/// How much of the last output is shown.
const LAST_LINES: usize = 10;
const LAST_BYTES: usize = 2_000;

pub(crate) async fn page(caller: Caller, Path(id): Path<i64>) -> Page {
    let found =
        caller.call(move |ctx| Ok((detail_with_last_output(ctx, TaskId(id))?, explain_task(ctx, TaskId(id))?))).await?;
    let body = body(&found.0, &found.1, &caller.login);
    Ok(whole_page(&format!("Task {id}"), "/tasks", Some(&caller.login), Refresh::OnChanges, &body))
}

fn body(detail: &TaskDetail, explanation: &Explanation, login: &Login) -> Markup {
    let (task, now) = (&detail.task, explanation.now);
    // This page shows what that command shows.
    let command = answer_command(explanation).filter(|command| *command != format!("taskqueue status {}", task.id));
    html! {
        h1 { "Task " (task.id) " · " (text(&task.class)) " · " (task_status(&task.status)) }
        (answer(&answer_of(explanation), command.as_deref(), false))
        @if login.may >= Scope::Operate {
            div.actions {
                @if let Some(label) = retry_label(task) {
                    form method="post" action=(format!("/tasks/{}/retry", task.id)) {
                        input type="hidden" name="status" value=(text(&task.status));
                        button { (label) }
                    }
                }
                @if !task.is_settled() { (button(&format!("/tasks/{}/cancel", task.id), "Cancel")) }
                @if is_editable(task) { a.button href=(format!("/tasks/{}/edit", task.id)) { "Edit" } }
            }
        }
        (facts(detail, now))
        @if let Some((run, outputs)) = last_attempt(detail) { (last_output(run, outputs)) }
        h2 { "Data" }
        (json(&task.data, task.id, "data-text"))
        @if let Some(meta) = &task.meta { h2 { "Metadata" } (json(meta, task.id, "meta-text")) }
        h2 { "Attempts" }
        (time_line(detail, now))
        (attempts(detail, now))
        @if !detail.prerequisites.is_empty() || !detail.dependants.is_empty() {
            h2 { "Dependencies" }
            (graph(task, &detail.prerequisites, &detail.dependants))
            (linked("Waits for", &detail.prerequisites))
            (linked("Dependants", &detail.dependants))
        }
        h2 { "Events" }
        (events(&detail.events, now))
    }
}

/// Returns what the button is called that starts the task again; `None` if it waits for its first attempt or is in progress.
fn retry_label(task: &Task) -> Option<&'static str> {
    match task.status {
        Stored::Known(TaskStatus::Failed | TaskStatus::Timeout) => Some("Retry"),
        Stored::Known(TaskStatus::Scheduled | TaskStatus::Processing) => None,
        _ => Some("Run again"),
    }
}

/// Returns true if a change of the task can have an effect.
pub(super) fn is_editable(task: &Task) -> bool {
    editable().iter().any(|status| task.status.is(*status))
}

/// Returns the newest attempt that has started.
fn last_attempt(detail: &TaskDetail) -> Option<&(Run, Vec<RunOutput>)> {
    detail.runs.iter().find(|(run, _)| run.started_on.is_some())
}

fn facts(detail: &TaskDetail, now: DateTime<Utc>) -> Markup {
    let task = &detail.task;
    let texts = [
        ("Name", task.name.clone()),
        ("Tag", task.tag.clone()),
        ("Unique key", task.unique_key.clone()),
        ("Timeout", task.timeout_secs.map(|secs| format!("{secs}s"))),
        ("Backoff", task.backoff.clone()),
    ];
    html! {
        dl {
            dt { "What" } dd { (text(what(task))) }
            dt { "Queued" } dd { (time(task.queued_on, now)) " by " (text(&task.queued_by)) }
            @if !task.is_settled() { dt { "Due" } dd { (time(task.due_from(), now)) } }
            @if let Some(on) = task.start_before { dt { "Start before" } dd { (time(on, now)) } }
            dt { "Failed" } dd { (failed_attempts(task, &detail.reason)) " of at most " (plural(detail.allowed_retries, "attempt")) }
            dt { "Attempts" } dd { (task.attempts) " ended" }
            @if let Some((run, _)) = last_attempt(detail) {
                dt { "Last attempt" } dd { (run_status(&run.status)) " on host " (text(&run.host)) ", process " (process(run)) ", " (log_link(run)) }
            }
            dt { "Priority" } dd { (task.priority) }
            @for (name, value) in &texts {
                @if let Some(value) = value { dt { (name) } dd { (text(value)) } }
            }
            @if let Some(key) = &task.limit_key { dt { "Limit key" } dd { (text(key)) (holders(&detail.reason)) } }
            @if let Some(schedule) = &task.schedule {
                dt { "Schedule" } dd { (schedule_link(schedule.id)) ": " (text(format!("{} ({})", schedule.every, schedule.time_zone))) }
            }
            @if let Some(parent) = task.parent_id { dt { "Parent" } dd { (task_link(parent)) } }
            @if let Some(until) = detail.kept_until { dt { "Kept until" } dd { (time(until, now)) } }
        }
    }
}

fn attempts(detail: &TaskDetail, now: DateTime<Utc>) -> Markup {
    if detail.runs.is_empty() {
        return html! { p { "None yet." } };
    }
    html! {
        (cards(
            ["Attempt", "Status", "Started", "Took", "Host", "Process", "CPU", "Memory", "Output", "Outcome"],
            &html! { @for (run, _) in &detail.runs { (attempt(run, now)) } },
        ))
        @for (run, _) in &detail.runs {
            @if let Some(results) = &run.results { h2 { "Results of attempt " (run.attempt) } (json(results, run.task_id, &format!("results-{}", run.id))) }
        }
    }
}

fn attempt(run: &Run, now: DateTime<Utc>) -> Markup {
    let outcome = if run.error_code.is_empty() {
        run.progress_message.clone()
    } else {
        error_words(&run.error_code, &run.error_message)
    };
    html! {
        tr {
            td data-label="attempt" { (run.attempt) " " span.quiet { "(run " (run.id) ")" } }
            td { (run_status(&run.status)) @if run.percents_completed > 0 { " " (run.percents_completed) "%" } }
            td data-label="started" { (maybe_time(run.started_on, now)) }
            td data-label="took" { (run_time(run, now)) }
            td data-label="on" { (text(&run.host)) }
            td data-label="process" { (process(run)) }
            td data-label="CPU" { @if let Some(msecs) = run.cpu_msecs { (short_distance(TimeDelta::milliseconds(msecs))) } }
            td data-label="memory" { @if let Some(bytes) = run.peak_memory_bytes { (bytes >> 20) " MiB" } @else if run.cpu_msecs.is_some() { span.quiet { "less than its runner" } } }
            td { @if run.started_on.is_some() { (log_link(run)) } }
            td.words { (text(outcome)) }
        }
    }
}

/// What works or worked on a run.
fn process(run: &Run) -> Markup {
    html! {
        @if let Some(claimant) = &run.claimant { (text(claimant)) }
        @if let Some(handler) = run.handler_process_id { (handler) " " }
        @if let Some(runner) = run.process_id {
            @if run.handler_process_id.is_some() { span.quiet { "(runner " (runner) ")" } } @else { (runner) }
        }
    }
}

fn log_link(run: &Run) -> Markup {
    html! { a href=(format!("/tasks/{}/log?run={}", run.task_id, run.id)) { "log" } }
}

/// The tasks that have the slots of a key for which a task waits.
fn holders(reason: &Reason) -> Markup {
    html! {
        @if let Reason::KeyIsFull { holders, .. } = reason {
            @for holder in holders { ", held by task " (task_link(*holder)) }
        }
    }
}

/// The ends of what a run has written that has ended; nothing of a run in progress, whose log is live.
fn last_output(run: &Run, outputs: &[RunOutput]) -> Markup {
    html! {
        @for output in outputs.iter().filter(|output| !output.content.trim().is_empty()) {
            @let (end, is_all) = end_of(&output.content);
            h2 { @if !is_all { "End of " } (text(&output.stream)) " of attempt " (run.attempt) }
            pre { (coloured(end)) }
        }
    }
}

/// Returns the last lines of a text, and whether these are all.
fn end_of(text: &str) -> (&str, bool) {
    let text = text.trim_end();
    let lines_from = text.rmatch_indices('\n').nth(LAST_LINES - 1).map_or(0, |(at, _)| at + 1);
    let from = text.ceil_char_boundary(lines_from.max(text.len().saturating_sub(LAST_BYTES)));
    (&text[from..], from == 0)
}

fn linked(title: &str, tasks: &[LinkedTask]) -> Markup {
    html! {
        @if !tasks.is_empty() {
            h3 { (title) }
            ul {
                @for task in tasks {
                    li {
                        (task_link(task.id)) " "
                        @if let Some(class) = &task.class { (text(class)) " " }
                        @if let Some(status) = &task.status { (task_status(status)) } @else { "deleted" }
                        @if !task.needs_success { " (any outcome)" }
                    }
                }
            }
        }
    }
}

/// A table of events.
pub(crate) fn events(events: &[Event], now: DateTime<Utc>) -> Markup {
    if events.is_empty() {
        return html! { p { "None." } };
    }
    let rows = html! {
        @for event in events {
            tr {
                td { (time(event.occurred_on, now)) }
                td { (text(&event.kind)) }
                td data-label="task" { @if let Some(id) = event.task_id { (task_link(id)) } }
                td { (text(&event.actor)) @if !event.host.is_empty() { " on " (text(&event.host)) } }
                td.words { (text(event_words(&event.details))) }
            }
        }
    };
    cards(["When", "What", "Task", "Who", "Details"], &rows)
}
