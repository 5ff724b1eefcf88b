//! What several pages show.

use std::fmt::Display;

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use taskqueue_domain::run::status::{RunStatus, Stored, TaskStatus};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Run;
use taskqueue_domain::text::outside_text::{clean_block, clean_line};
use taskqueue_engine::inspect::status::Counted;
use taskqueue_views::human::{count, distance, instant, relative};

/// Text from outside as one clean line.
pub(crate) fn text(value: impl Display) -> Markup {
    html! { (clean_line(&value.to_string())) }
}

/// Text from outside in several lines.
pub(crate) fn block(value: &str) -> Markup {
    html! { pre { (clean_block(value)) } }
}

/// A time with its distance; the exact one is shown by the browser on request.
pub(crate) fn time(at: DateTime<Utc>, now: DateTime<Utc>) -> Markup {
    html! { time datetime=(instant(at)) title=(instant(at)) { (relative(at, now)) } }
}

/// A time with its distance, if it is known.
pub(crate) fn maybe_time(at: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Markup {
    html! { @if let Some(at) = at { (time(at, now)) } }
}

/// The link to a task.
pub(crate) fn task_link(id: TaskId) -> Markup {
    html! { a href=(format!("/tasks/{id}")) { (id) } }
}

/// The link to a schedule.
pub(crate) fn schedule_link(id: TaskId) -> Markup {
    html! { a href=(format!("/schedules/{id}")) { (id) } }
}

/// How long a run took, or takes so far.
pub(crate) fn run_time(run: &Run, now: DateTime<Utc>) -> Markup {
    html! { @if let Some(started) = run.started_on { (distance(run.finished_on.unwrap_or(now) - started)) } }
}

/// Returns the class of the style sheet for a status.
pub(crate) const fn status_class(status: &Stored<TaskStatus>) -> &'static str {
    match status {
        Stored::Known(TaskStatus::Processing) => "good",
        Stored::Known(TaskStatus::Failed | TaskStatus::Timeout) | Stored::Unknown(_) => "bad",
        Stored::Known(TaskStatus::Scheduled) => "waiting",
        Stored::Known(TaskStatus::Success | TaskStatus::Cancelled | TaskStatus::Expired) => "quiet",
    }
}

/// The status of a task: a word, and a colour that repeats it.
pub(crate) fn task_status(status: &Stored<TaskStatus>) -> Markup {
    html! { span class=(status_class(status)) { (text(status)) } }
}

/// The status of a run.
pub(crate) fn run_status(status: &Stored<RunStatus>) -> Markup {
    let class = match status {
        Stored::Known(RunStatus::Processing) => "good",
        Stored::Known(RunStatus::Error | RunStatus::Timeout) | Stored::Unknown(_) => "bad",
        Stored::Known(RunStatus::Scheduled) => "waiting",
        Stored::Known(RunStatus::Success | RunStatus::Cancelled | RunStatus::Released) => "quiet",
    };
    html! { span class=(class) { (text(status)) } }
}

/// A counter with its name, and where it leads. Nothing to count is quiet.
pub(crate) fn counter(name: &str, number: Counted, address: &str) -> Markup {
    let is_quiet = number.count == 0 && !number.or_more;
    html! { li.quiet[is_quiet] { a href=(address) { b { (count(number)) } (name) } } }
}

/// A counter of what went wrong.
pub(crate) fn bad_counter(name: &str, number: Counted, address: &str) -> Markup {
    let class = if number.count == 0 { "quiet" } else { "bad" };
    html! { li class=(class) { a href=(address) { b { (count(number)) } (name) } } }
}

/// A table with these heads, whose rows become cards on a narrow screen.
pub(crate) fn cards(heads: impl IntoIterator<Item = &'static str>, rows: &Markup) -> Markup {
    html! {
        div.scroll {
            table.cards {
                thead { tr { @for head in heads { th { (head) } } } }
                tbody { (rows) }
            }
        }
    }
}

/// A form with one button.
pub(crate) fn button(action: &str, label: &str) -> Markup {
    html! { form method="post" action=(action) { button { (label) } } }
}

/// An answer with the command that helps.
pub(crate) fn answer(words: &str, command: Option<&str>, is_bad: bool) -> Markup {
    html! {
        div.answer.bad[is_bad] {
            (text(words))
            @if let Some(command) = command { br; span.quiet { "In a shell: " } code { (text(command)) } }
        }
    }
}
