//! The pages, one file each. Text from outside reaches a page cleaned, by [`text`] or by the types of the domain; maud escapes it.

mod chart;
pub(crate) mod classes;
pub(crate) mod events;
pub(crate) mod failures;
mod graph;
pub(crate) mod login;
pub(crate) mod now;
mod parts;
pub(crate) mod pauses;
pub(crate) mod runners;
pub(crate) mod schedule;
pub(crate) mod schedules;
pub(crate) mod settings;
pub(crate) mod tasks;

use axum::http::{StatusCode, Uri};
use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

use self::parts::text;
use crate::assets;
use crate::logins::login::Login;
use crate::serving::address::API;
use crate::serving::problem::Problem;
use taskqueue_domain::task::ids::RunId;

/// The answer of a page: for a problem, its page.
type Page = Result<Response, Problem>;

/// When a page loads itself again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refresh {
    Never,
    /// When the queue has changed.
    OnChanges,
    /// When the handler of this run has written something.
    OnOutput(RunId),
}

/// The pages of the menu.
const MENU: &[(&str, &str)] = &[
    ("/", "Now"),
    ("/tasks", "Tasks"),
    ("/failures", "Failures"),
    ("/schedules", "Schedules"),
    ("/runners", "Runners"),
    ("/classes", "Classes"),
    ("/events", "Events"),
    ("/settings", "Settings"),
];

/// A page for a login, under this place of the menu.
pub(crate) fn page(title: &str, place: &str, login: Option<&Login>, refresh: Refresh, body: &Markup) -> Response {
    let stream = match refresh {
        Refresh::Never => None,
        Refresh::OnChanges => Some("/live".to_owned()),
        Refresh::OnOutput(run) => Some(format!("/runs/{run}/log")),
    };
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (text(title)) " · taskqueue" }
                link rel="stylesheet" href=(assets::style());
                script src=(assets::script()) defer {}
                // Other pages have fields, and would lose what is being typed.
                @if let Refresh::OnOutput(_) = refresh { noscript { meta http-equiv="refresh" content="10"; } }
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                @if let Some(login) = login { (menu(place, login)) }
                main #main data-stream=[stream] { (body) }
            }
        }
    };
    Html(markup.into_string()).into_response()
}

fn menu(place: &str, login: &Login) -> Markup {
    html! {
        header {
            nav aria-label="Pages" {
                @for (address, name) in MENU {
                    a href=(address) aria-current=[(place == *address).then_some("page")] { (name) }
                }
            }
            span.quiet { (text(&login.name)) " (" (login.may) ")" }
            form method="post" action="/logout" { button { "Log out" } }
        }
    }
}

/// The page of a problem.
pub(crate) fn problem_page(problem: &Problem, login: Option<&Login>) -> Response {
    let title = problem.status.canonical_reason().unwrap_or("Failed");
    let body = html! {
        h1 { (title) }
        p.answer.bad role="alert" { (text(&problem.detail)) }
        p { a href="/" { "Back to Now" } }
    };
    (problem.status, page(title, "", login, Refresh::Never, &body)).into_response()
}

/// For an address that there is not.
pub(crate) async fn not_found(uri: Uri) -> Response {
    let problem = Problem::new(StatusCode::NOT_FOUND, "not-found", "there is no such page");
    if uri.path().starts_with(API) { problem.into_response() } else { problem_page(&problem, None) }
}
