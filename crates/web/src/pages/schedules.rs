//! `GET /schedules`: the recurring tasks.

use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::parts::{button, cards, maybe_time, task_link, text};
use super::{Page, Refresh, page as whole_page};
use crate::app::Caller;
use crate::login::Login;
use taskqueue_domain::limits::scope::Scope;
use taskqueue_domain::run::status::ScheduleStatus;
use taskqueue_engine::change::schedules::{Schedule, list};
use taskqueue_views::what::what_of;

pub(crate) async fn page(caller: Caller) -> Page {
    let (schedules, now) = caller.call(|ctx| Ok((list(ctx)?, ctx.now()?))).await?;
    let body = body(&schedules, now, &caller.login);
    Ok(whole_page("Schedules", "/schedules", Some(&caller.login), Refresh::OnChanges, &body))
}

fn body(schedules: &[Schedule], now: DateTime<Utc>, login: &Login) -> Markup {
    let heads = ["Schedule", "Class", "What", "Every", "Status", "Next", "Task", "Note"].into_iter();
    let heads = heads.chain((login.may >= Scope::Operate).then_some("Change"));
    html! {
        h1 { "Schedules" }
        @if schedules.is_empty() {
            p { "None. " code { "taskqueue schedule add" } " adds one." }
        } @else {
            (cards(heads, &html! { @for schedule in schedules { (row(schedule, now, login)) } }))
        }
    }
}

/// Returns the name of a schedule, or its id if it has none.
pub(super) fn title(schedule: &Schedule) -> String {
    schedule.name.clone().unwrap_or_else(|| schedule.id.to_string())
}

/// The buttons that change a schedule.
pub(super) fn actions(schedule: &Schedule) -> Markup {
    let id = schedule.id;
    html! {
        (button(&format!("/schedules/{id}/run"), "Run now"))
        @if schedule.status.is(ScheduleStatus::Paused) {
            (button(&format!("/schedules/{id}/resume"), "Resume"))
        } @else {
            (button(&format!("/schedules/{id}/pause"), "Pause"))
        }
    }
}

fn row(schedule: &Schedule, now: DateTime<Utc>, login: &Login) -> Markup {
    html! {
        tr {
            td { a href=(format!("/schedules/{}", schedule.id)) { (text(title(schedule))) } }
            td { (text(&schedule.class)) }
            td { (text(what_of(schedule.name.as_deref(), &schedule.class, &schedule.data))) }
            td { (text(&schedule.every)) " " span.quiet { (text(&schedule.time_zone)) } }
            td { (text(&schedule.status)) }
            td { (maybe_time(schedule.planned_on, now)) }
            td { (task_link(schedule.task_id)) " " (text(&schedule.task_status)) }
            td.words { @if let Some(problem) = &schedule.problem { span.bad { (text(problem)) } } }
            @if login.may >= Scope::Operate { td { div.actions { (actions(schedule)) } } }
        }
    }
}
