//! `GET /schedules`: the recurring tasks.

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use crate::app::Caller;
use crate::logins::login::Login;
use crate::pages::parts::{button, cards, maybe_time, task_link, task_status, text, time};
use crate::pages::{Page, Refresh, page as whole_page};
use taskqueue_domain::limits::scope::Scope;
use taskqueue_domain::run::status::ScheduleStatus;
use taskqueue_domain::task::records::Task;
use taskqueue_engine::change::schedules::{Schedule, last_tasks, list};
use taskqueue_views::words::what::what_of;

pub(crate) async fn page(caller: Caller) -> Page {
    let (schedules, last, now) = caller
        .call(|ctx| {
            let schedules = list(ctx)?;
            let last = last_tasks(ctx, &schedules)?;
            Ok((schedules, last, ctx.now()?))
        })
        .await?;
    let body = body(&schedules, &last, now, &caller.login);
    Ok(whole_page("Schedules", "/schedules", Some(&caller.login), Refresh::OnChanges, &body))
}

fn body(schedules: &[Schedule], last: &[Task], now: DateTime<Utc>, login: &Login) -> Markup {
    let heads = ["Schedule", "Class", "What", "Every", "Status", "Last", "Next", "Task", "Note"].into_iter();
    let heads = heads.chain((login.may >= Scope::Operate).then_some("Change"));
    html! {
        h1 { "Schedules" }
        @if schedules.is_empty() {
            p { "None. " code { "taskqueue schedule add" } " adds one." }
        } @else {
            (cards(heads, &html! { @for schedule in schedules { (row(schedule, last, now, login)) } }))
        }
    }
}

/// Returns the name of a schedule, or its id if it has none.
pub(super) fn title(schedule: &Schedule) -> String {
    schedule.name.clone().unwrap_or_else(|| schedule.id.to_string())
}

/// The buttons that change a schedule.
pub(super) fn actions(schedule: &Schedule, now: DateTime<Utc>) -> Markup {
    let id = schedule.id;
    html! {
        form method="post" action=(format!("/schedules/{id}/run")) {
            input type="hidden" name="page" value=(now.timestamp_micros());
            button { "Run now" }
        }
        @if schedule.status.is(ScheduleStatus::Paused) {
            (button(&format!("/schedules/{id}/resume"), "Resume"))
        } @else {
            (button(&format!("/schedules/{id}/pause"), "Pause"))
        }
    }
}

fn row(schedule: &Schedule, last: &[Task], now: DateTime<Utc>, login: &Login) -> Markup {
    let is_own = |task: &&Task| task.schedule.as_ref().is_some_and(|own| own.id == schedule.id);
    html! {
        tr {
            td { a href=(format!("/schedules/{}", schedule.id)) { (text(title(schedule))) } }
            td { (text(&schedule.class)) }
            td { (text(what_of(schedule.name.as_deref(), &schedule.class, &schedule.data))) }
            td { (text(&schedule.every)) " " span.quiet { (text(&schedule.time_zone)) } }
            td { (text(&schedule.status)) }
            td data-label="last" {
                @if let Some(task) = last.iter().find(is_own) {
                    (task_link(task.id)) " " (task_status(&task.status)) " " (time(task.updated_on, now))
                }
            }
            td data-label="next" { (maybe_time(schedule.planned_on, now)) }
            td { (task_link(schedule.task_id)) " " (text(&schedule.task_status)) }
            td.words { @if let Some(problem) = &schedule.problem { span.bad { (text(problem)) } } }
            @if login.may >= Scope::Operate { td { div.actions { (actions(schedule, now)) } } }
        }
    }
}
