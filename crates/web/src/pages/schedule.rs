//! `GET /schedules/{id}`: a schedule with its next times and its newest tasks.

use axum::extract::Path;
use chrono::{DateTime, Utc};
use maud::{Markup, html};

use crate::app::Caller;
use crate::logins::login::Login;
use crate::pages::parts::{answer, cards, maybe_time, task_link, task_status, text, time};
use crate::pages::schedules::{actions, title};
use crate::pages::{Page, Refresh, page as whole_page};
use crate::serving::address::encoded;
use taskqueue_domain::limits::scope::Scope;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Task;
use taskqueue_engine::change::schedules::{ScheduleDetail, no_schedule, show};
use taskqueue_views::links::waits_for_key;
use taskqueue_views::words::what::what_of;

pub(crate) async fn page(caller: Caller, Path(id): Path<i64>) -> Page {
    let (detail, now) = caller
        .call(move |ctx| {
            let detail = show(ctx, TaskId(id))?.ok_or_else(|| no_schedule(TaskId(id)))?;
            Ok((detail, ctx.now()?))
        })
        .await?;
    let (heading, login) = (format!("Schedule {}", title(&detail.schedule)), &caller.login);
    Ok(whole_page(&heading, "/schedules", Some(login), Refresh::OnChanges, &body(&detail, now, login)))
}

fn body(detail: &ScheduleDetail, now: DateTime<Utc>, login: &Login) -> Markup {
    let schedule = &detail.schedule;
    let selection = format!("schedule={}", schedule.id);
    html! {
        h1 { "Schedule " (text(title(schedule))) " · " (text(&schedule.class)) " · " (text(&schedule.status)) }
        @if let Some(problem) = &schedule.problem { (answer(problem, None, true)) }
        @if let Some(holder) = schedule.key_holder {
            p { "Its next task " (waits_for_key(holder)) ". " a href=(format!("/tasks/{holder}")) { "Task " (holder) } }
        }
        @if login.may >= Scope::Operate { div.actions { (actions(schedule, now)) } }
        dl {
            dt { "What" } dd { (text(what_of(schedule.name.as_deref(), &schedule.class, &schedule.data))) }
            dt { "Every" } dd { (text(&schedule.every)) " " span.quiet { (text(&schedule.time_zone)) } }
            dt { "Catch-up" } dd { (text(&schedule.catch_up)) }
            dt { "Overlap" } dd { (text(&schedule.overlap)) }
            @if let Some(file) = &schedule.file { dt { "File" } dd { (text(file)) } }
        }
        h2 { "Next times" }
        @if detail.next_times.is_empty() {
            p { "None." }
        } @else {
            ul { @for on in &detail.next_times { li { (on.format("%F %H:%M:%S UTC")) ", " (time(*on, now)) } } }
        }
        h2 { "Newest tasks" }
        (tasks(&detail.tasks, now))
        p { a href=(format!("/tasks?q={}", encoded(&selection))) { "All its tasks" } }
    }
}

fn tasks(tasks: &[Task], now: DateTime<Utc>) -> Markup {
    let rows = html! {
        @for task in tasks {
            tr {
                td { (task_link(task.id)) }
                td data-label="planned" { (maybe_time(task.schedule.as_ref().and_then(|schedule| schedule.planned_on), now)) }
                td { (task_status(&task.status)) }
                td data-label="attempts" { (task.attempts) }
                td data-label="changed" { (time(task.updated_on, now)) }
            }
        }
    };
    cards(["Task", "Planned", "Status", "Attempts", "Changed"], &rows)
}
