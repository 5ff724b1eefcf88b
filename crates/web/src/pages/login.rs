//! `GET` and `POST /login`, `POST /logout`: a token becomes a cookie that scripts cannot read.

use axum::Form;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::SET_COOKIE;
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::html;
use serde::Deserialize;

use crate::app::App;
use crate::pages::parts::text;
use crate::pages::{Refresh, page as whole_page};
use crate::serving::guard::cookie_name;

/// Where to go afterwards.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Target {
    pub(crate) to: String,
}

/// What the form sends.
#[derive(Deserialize)]
pub(crate) struct LoginForm {
    token: String,
    #[serde(default)]
    pub(crate) to: String,
}

pub(crate) async fn form(Query(Target { to }): Query<Target>) -> Response {
    show(&to, false)
}

fn show(to: &str, is_wrong: bool) -> Response {
    let body = html! {
        h1 { "taskqueue" }
        @if is_wrong { p.answer.bad role="alert" { "This token is not valid." } }
        form.row method="post" action="/login" {
            label for="token" { "Token" }
            input #token name="token" type="password" required autofocus autocomplete="current-password";
            input type="hidden" name="to" value=(text(to));
            button { "Log in" }
        }
        p.quiet { "The terminal in which " code { "taskqueue web" } " was started shows a token; " code { "taskqueue web token add" } " adds others." }
    };
    whole_page("Log in", "/login", None, Refresh::Never, &body)
}

pub(crate) async fn log_in(State(app): State<App>, Form(sent): Form<LoginForm>) -> Response {
    let token = sent.token.trim();
    if app.login(token).await.is_none() {
        return (StatusCode::UNAUTHORIZED, show(&sent.to, true)).into_response();
    }
    redirect(&app, own_path(&sent.to), &format!("{token}; Path=/"))
}

pub(crate) async fn log_out(State(app): State<App>) -> Response {
    redirect(&app, "/login", "; Path=/; Max-Age=0")
}

/// Returns the path, unless it leads to another site.
pub(crate) fn own_path(to: &str) -> &str {
    let is_plain = to.is_ascii() && !to.contains('\\') && !to.contains(char::is_control);
    if is_plain && to.starts_with('/') && !to.starts_with("//") { to } else { "/" }
}

/// Sets the cookie of the login to this value, with its attributes.
fn redirect(app: &App, to: &str, value: &str) -> Response {
    let secure = if app.options.https.is_used() { "; Secure" } else { "" };
    let cookie = format!("{}={value}; HttpOnly; SameSite=Strict{secure}", cookie_name(&app.options));
    ([(SET_COOKIE, cookie)], Redirect::to(to)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_a_path_of_this_server_alone() {
        assert_eq!(own_path("/tasks?q=a"), "/tasks?q=a");
        for other in ["//evil.example", "https://evil.example", "/\\evil.example", "", "/a\nb"] {
            assert_eq!(own_path(other), "/", "{other:?}");
        }
    }
}
