//! `GET /events`: what happened, and who did it.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use maud::html;

use super::task::events as event_table;
use super::{Refresh, page as whole_page, problem_page};
use crate::app::App;
use crate::login::Login;
use taskqueue_engine::inspect::events::{EventFilter, list};

/// How many events are listed.
const EVENTS: i64 = 200;

pub(crate) async fn page(State(app): State<App>, Extension(login): Extension<Login>) -> Response {
    match app.call(&login, |ctx| Ok((list(ctx, &EventFilter::default(), EVENTS)?, ctx.now()?))).await {
        Ok((events, now)) => {
            let body = html! { h1 { "Events" } (event_table(&events, now)) };
            whole_page("Events", "/events", Some(&login), Refresh::OnChanges, &body)
        }
        Err(problem) => problem_page(&problem, Some(&login)),
    }
}
