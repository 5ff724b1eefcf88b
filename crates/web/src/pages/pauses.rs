//! `GET /pause?scope=KIND&name=NAME`: the form that pauses, drains or stops something; `POST /pause` and `POST /resume`.

use axum::extract::{Query, State};
use axum::response::Response;
use axum::{Extension, Form};
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::changes::changed;
use super::parts::{answer, text};
use super::{Refresh, page as whole_page, problem_page};
use crate::address::encoded;
use crate::app::App;
use crate::login::Login;
use crate::problem::Problem;
use taskqueue_domain::limits::pause::{Pause, PauseMode, PauseScope};
use taskqueue_domain::limits::scope::Scope;
use taskqueue_domain::text::outside_text::{OutsideText, clean_line};
use taskqueue_domain::time::when::parse_duration;
use taskqueue_engine::change::pauses::{self, PauseRequest};
use taskqueue_views::pause_words::pause_words;

/// What is paused or resumed, and how. Without a kind and a mode, everything is paused.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Order {
    scope: String,
    name: String,
    mode: String,
    pub(crate) reason: String,
    duration: String,
}

impl Order {
    fn scope(&self) -> Result<PauseScope, Problem> {
        let kind = if self.scope.is_empty() { PauseScope::All.kind() } else { &self.scope };
        PauseScope::parse(kind, self.name.clone())
            .ok_or_else(|| Problem::input(format!("\"{kind}\" is not all, class or runner")))
    }

    fn request(&self) -> Result<PauseRequest, Problem> {
        let mode = if self.mode.is_empty() { Some(PauseMode::Pause) } else { PauseMode::parse(&self.mode) };
        let mode = mode.ok_or_else(|| Problem::input(format!("\"{}\" is not pause, drain or stop", self.mode)))?;
        let duration = Some(self.duration.trim()).filter(|text| !text.is_empty()).map(parse_duration).transpose();
        let (scope, reason) = (self.scope()?, self.reason.clone());
        Ok(PauseRequest { scope, mode, reason, duration: duration.map_err(Problem::input)? })
    }
}

/// Returns the address of the form for this scope.
pub(super) fn address(scope: &PauseScope) -> String {
    format!("/pause?scope={}&name={}", scope.kind(), encoded(scope.name()))
}

/// The pauses in effect, each with a button that ends it.
pub(super) fn in_effect(pauses: &[Pause], now: DateTime<Utc>, login: &Login) -> Markup {
    html! {
        @for pause in pauses {
            (answer(&pause_words(pause, now), None, false))
            // A name that is shown cleaned is another name.
            @if login.may >= Scope::Operate && OutsideText::from(pause.scope.name()).is_clean() {
                form.row method="post" action="/resume" {
                    input type="hidden" name="scope" value=(pause.scope.kind());
                    input type="hidden" name="name" value=(pause.scope.name());
                    button { "Resume " @if pause.scope == PauseScope::All { "all" } @else { (text(&pause.scope)) } }
                }
            }
        }
    }
}

/// The short form for everything.
pub(super) fn pause_all() -> Markup {
    html! {
        form.row method="post" action="/pause" {
            label for="reason" { "Why" }
            input #reason name="reason" required maxlength="200" placeholder="we deploy";
            button { "Pause all" }
            a href=(address(&PauseScope::All)) { "Drain or stop" }
        }
    }
}

pub(crate) async fn form(Extension(login): Extension<Login>, Query(order): Query<Order>) -> Response {
    let scope = match order.scope() {
        Ok(scope) => scope,
        Err(problem) => return problem_page(&problem, Some(&login)),
    };
    let body = html! {
        h1 { "Pause " (text(&scope)) }
        form.fields method="post" action="/pause" {
            input type="hidden" name="scope" value=(scope.kind());
            @match &scope {
                PauseScope::All => {},
                PauseScope::Class(name) => {
                    label for="name" { "Class, or a pattern such as mail.*" }
                    input #name name="name" required maxlength="190" value=(clean_line(name));
                },
                PauseScope::Runner(name) => {
                    label for="name" { "Name of the runners" }
                    input #name name="name" required maxlength="190" value=(clean_line(name));
                },
            }
            label for="reason" { "Why" }
            input #reason name="reason" required maxlength="200" placeholder="we deploy";
            label for="duration" { "For how long; until somebody resumes it if empty" }
            input #duration name="duration" placeholder="2h";
            div.actions { @for mode in PauseMode::ALL { button name="mode" value=(mode.as_str()) { (label(mode)) } } }
            ul.quiet { @for mode in PauseMode::ALL { li { b { (label(mode)) } ": " (effect(mode)) } } }
        }
    };
    whole_page("Pause", "/", Some(&login), Refresh::Never, &body)
}

const fn label(mode: PauseMode) -> &'static str {
    match mode {
        PauseMode::Pause => "Pause",
        PauseMode::Drain => "Drain",
        PauseMode::Stop => "Stop",
    }
}

const fn effect(mode: PauseMode) -> &'static str {
    match mode {
        PauseMode::Pause => "nothing new starts; runs in progress continue",
        PauseMode::Drain => "nothing new starts; runners end when their runs have ended",
        PauseMode::Stop => {
            "nothing new starts; runners return the runs that do not end within the grace period, and end"
        }
    }
}

pub(crate) async fn pause(
    State(app): State<App>,
    Extension(login): Extension<Login>,
    Form(order): Form<Order>,
) -> Response {
    match order.request() {
        Ok(request) => changed(&login, app.call(&login, move |ctx| pauses::pause(ctx, request)).await, "/"),
        Err(problem) => problem_page(&problem, Some(&login)),
    }
}

pub(crate) async fn resume(
    State(app): State<App>,
    Extension(login): Extension<Login>,
    Form(order): Form<Order>,
) -> Response {
    match order.scope() {
        Ok(scope) => changed(&login, app.call(&login, move |ctx| pauses::resume(ctx, &scope)).await, "/"),
        Err(problem) => problem_page(&problem, Some(&login)),
    }
}
