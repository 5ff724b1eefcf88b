//! `GET /runners`: the processes that work.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use maud::html;

use super::now::runner_table;
use super::{Refresh, page as whole_page, problem_page};
use crate::app::App;
use crate::login::Login;
use taskqueue_engine::inspect::status::list_runners;

/// How many runners are listed, those that have ended among them.
const RUNNERS: i64 = 200;

pub(crate) async fn page(State(app): State<App>, Extension(login): Extension<Login>) -> Response {
    match app.call(&login, |ctx| Ok((list_runners(ctx, RUNNERS, false)?, ctx.now()?))).await {
        Ok((runners, now)) => {
            let body = html! { h1 { "Runners" } (runner_table(&runners, now, &login)) };
            whole_page("Runners", "/runners", Some(&login), Refresh::OnChanges, &body)
        }
        Err(problem) => problem_page(&problem, Some(&login)),
    }
}
