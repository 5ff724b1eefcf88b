//! `GET /pause?scope=KIND&name=NAME`: the form that pauses, drains or stops something; `POST /pause` and `POST /resume`.

use axum::Form;
use axum::extract::Query;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use crate::app::Caller;
use crate::logins::login::Login;
use crate::pages::parts::{answer, text};
use crate::pages::tasks::changes::back_to;
use crate::pages::{Page, Refresh, page as whole_page};
use crate::querying::hidden::nothing_to_hide;
use crate::serving::address::encoded;
use crate::serving::problem::Problem;
use taskqueue_domain::limits::pause::{Pause, PauseMode, PauseScope};
use taskqueue_domain::limits::scope::Scope;
use taskqueue_domain::text::outside_text::{OutsideText, clean_line};
use taskqueue_domain::time::when::parse_duration;
use taskqueue_engine::change::classes::nearest_if_unknown;
use taskqueue_engine::change::pauses::{self, PauseRequest};
use taskqueue_engine::{Context, EngineResult};
use taskqueue_views::words::pause_words::pause_words;

/// What is paused or resumed. A name that is misspelt must not mean everything.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Target {
    scope: String,
    #[serde(default)]
    name: String,
}

/// A pause as the form sends it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    scope: String,
    #[serde(default)]
    name: String,
    mode: String,
    pub(crate) reason: String,
    #[serde(default)]
    duration: String,
}

/// What the reader should know of a pause that has no effect here.
struct Warning(String);

nothing_to_hide!(Warning);

fn scope_of(kind: &str, name: &str) -> Result<PauseScope, Problem> {
    match PauseScope::parse(kind, name.to_owned()) {
        Some(PauseScope::All) if !name.is_empty() => Err(Problem::input("the scope all takes no name")),
        Some(scope) => Ok(scope),
        None => Err(Problem::input(format!("\"{kind}\" is not all, class or runner"))),
    }
}

impl Target {
    pub(crate) fn scope(&self) -> Result<PauseScope, Problem> {
        scope_of(&self.scope, &self.name)
    }
}

impl Order {
    pub(crate) fn request(&self, scope: PauseScope) -> Result<PauseRequest, Problem> {
        let unknown = || Problem::input(format!("\"{}\" is not pause, drain or stop", self.mode));
        let mode = PauseMode::parse(&self.mode).ok_or_else(unknown)?;
        if self.reason.trim().is_empty() {
            return Err(Problem::input("the reason is missing"));
        }
        let given = Some(self.duration.trim()).filter(|text| !text.is_empty());
        let duration = given.map(parse_duration).transpose();
        let duration = duration.map_err(|words| Problem::input(format!("the duration: {words}")))?;
        Ok(PauseRequest { scope, mode, reason: self.reason.clone(), duration })
    }
}

/// The link to the form.
pub(super) const LINK: &str = "Pause, drain or stop";

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
            input type="hidden" name="scope" value="all";
            input type="hidden" name="mode" value="pause";
            label for="reason" { "Reason" }
            input #reason name="reason" required maxlength="200" placeholder="we deploy";
            button { "Pause all" }
            a href=(address(&PauseScope::All)) { (LINK) }
        }
    }
}

pub(crate) async fn form(caller: Caller, Query(target): Query<Target>) -> Page {
    form_page(&caller.login, &target.scope()?, None)
}

/// The form; after a mistake with what was typed.
fn form_page(login: &Login, scope: &PauseScope, wrong: Option<(&Order, &Problem)>) -> Page {
    if !OutsideText::from(scope.name()).is_clean() {
        return Err(Problem::input("this name has characters that a page cannot show: use `taskqueue pause`"));
    }
    let order = wrong.map(|(order, _)| order);
    let typed = |field: fn(&Order) -> &str| clean_line(order.map_or("", field));
    let modes = PauseMode::ALL.into_iter().filter(|mode| effect(*mode, scope).is_some());
    let body = html! {
        h1 { "Pause " (text(scope)) }
        @if let Some((_, problem)) = wrong { (answer(&problem.detail, None, true)) }
        form.fields method="post" action="/pause" {
            input type="hidden" name="scope" value=(scope.kind());
            @if *scope != PauseScope::All {
                label for="name" { (name_label(scope)) }
                input #name name="name" required maxlength="190" value=(clean_line(scope.name()));
            }
            label for="reason" { "Reason" }
            input #reason name="reason" required maxlength="200" placeholder="we deploy" value=(typed(|order| &order.reason));
            label for="duration" { "Duration (empty: until resumed)" }
            input #duration name="duration" placeholder="2h" value=(typed(|order| &order.duration));
            div.actions { @for mode in modes.clone() { button name="mode" value=(mode.as_str()) { (label(mode)) } } }
            ul.quiet { @for mode in modes { li { b { (label(mode)) } ": nothing new starts; " (effect(mode, scope).unwrap_or_default()) } } }
        }
    };
    Ok(whole_page("Pause", "/", Some(login), Refresh::Never, &body))
}

const fn name_label(scope: &PauseScope) -> &'static str {
    match scope {
        PauseScope::Runner(_) => "Runners with this name, including those that start later",
        _ => "Class, or a pattern such as mail.*",
    }
}

const fn label(mode: PauseMode) -> &'static str {
    match mode {
        PauseMode::Pause => "Pause",
        PauseMode::Drain => "Drain",
        PauseMode::Stop => "Stop",
    }
}

/// Returns what a mode does to runs in progress; `None` if it is the same as a pause.
const fn effect(mode: PauseMode, scope: &PauseScope) -> Option<&'static str> {
    match (mode, scope) {
        (PauseMode::Pause, _) => Some("runs in progress continue"),
        (PauseMode::Drain, PauseScope::Class(_)) => None,
        (PauseMode::Drain, _) => Some("runners exit when their runs have ended"),
        (PauseMode::Stop, PauseScope::Class(_)) => Some(
            "runners with a run of the class exit; they release all their runs that do not end within the grace period",
        ),
        (PauseMode::Stop, _) => Some("runners exit; they release the runs that do not end within the grace period"),
    }
}

pub(crate) async fn pause(caller: Caller, Form(order): Form<Order>) -> Page {
    let scope = scope_of(&order.scope, &order.name)?;
    let warning = match make(&caller, &order, scope.clone()).await {
        Err(problem) if problem.status == StatusCode::BAD_REQUEST => {
            let mut response = form_page(&caller.login, &scope, Some((&order, &problem)))?;
            *response.status_mut() = problem.status;
            return Ok(response);
        }
        made => made?,
    };
    let Some(Warning(words)) = warning else { return Ok(back_to("/")) };
    let body = html! { h1 { "Paused" } (answer(&words, None, false)) p { a href="/" { "Back to Now" } } };
    Ok(whole_page("Paused", "/", Some(&caller.login), Refresh::Never, &body))
}

async fn make(caller: &Caller, order: &Order, scope: PauseScope) -> Result<Option<Warning>, Problem> {
    let request = order.request(scope.clone())?;
    let made = caller.call(move |ctx| {
        pauses::pause(ctx, request)?;
        warning(ctx, &scope)
    });
    made.await
}

/// A name that nothing has may be a typing error; it may also exist on another host, or later.
fn warning(ctx: &mut Context, scope: &PauseScope) -> EngineResult<Option<Warning>> {
    let words = match scope {
        PauseScope::All => None,
        PauseScope::Class(class) => nearest_if_unknown(ctx, class)?.map(|nearest| {
            let meant = nearest.first().map(|nearest| format!("; did you mean {nearest}?")).unwrap_or_default();
            format!("No class {class} is known here, and no task has it{meant}")
        }),
        PauseScope::Runner(name) if pauses::names_claimant(ctx, name)? => {
            Some(format!("{name} is a claimant: a pause of runners does not apply to it."))
        }
        PauseScope::Runner(_) => None,
    };
    Ok(words.map(Warning))
}

pub(crate) async fn resume(caller: Caller, Form(target): Form<Target>) -> Page {
    let scope = target.scope()?;
    caller.call(move |ctx| pauses::resume(ctx, &scope)).await?;
    Ok(back_to("/"))
}
