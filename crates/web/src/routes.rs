//! All routes, each with the scope that it needs: the pages here, the interface in [`crate::api::operations`]. The router is made from
//! these two tables alone, so that no route can be without one.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};

use crate::api::operations::OPERATIONS;
use crate::app::App;
use crate::following::stream;
use crate::querying::database::REQUEST_LIMIT;
use crate::route::{Route, route};
use crate::serving::body_limit::with_body_within;
use crate::serving::encoding::with_utf8_form;
use crate::serving::guard::{Needs, every_request, with_login};
use crate::{assets, pages};
use taskqueue_domain::limits::scope::Scope;

/// How long a body that is too large is read before it is refused. Less than [`REQUEST_LIMIT`], after which a client would send
/// the request again.
const REFUSAL_LIMIT: Duration = Duration::from_secs(30);

const READ: Option<Scope> = Some(Scope::Read);
const OPERATE: Option<Scope> = Some(Scope::Operate);

/// The pages, and the files and streams that they load.
const PAGES: &[Route] = &[
    route("GET", "/login", None, || get(pages::login::form)),
    route("POST", "/login", None, || post(pages::login::log_in)),
    route("POST", "/logout", None, || post(pages::login::log_out)),
    route("GET", "/assets/{file}", None, || get(assets::file)),
    route("GET", "/", READ, || get(pages::now::page)),
    route("GET", "/live", READ, || get(stream::changes)),
    route("GET", "/tasks", READ, || get(pages::tasks::list::page)),
    route("GET", "/tasks/{id}", READ, || get(pages::tasks::task::page)),
    route("GET", "/tasks/{id}/log", READ, || get(pages::tasks::log::page)),
    route("GET", "/runs/{id}/log", READ, || get(stream::log_changes)),
    route("GET", "/tasks/{id}/edit", OPERATE, || get(pages::tasks::edit::form)),
    route("POST", "/tasks/{id}/edit", OPERATE, || post(pages::tasks::edit::save)).takes(pages::tasks::edit::BODY_BYTES),
    route("POST", "/tasks/{id}/retry", OPERATE, || post(pages::tasks::changes::retry_one)),
    route("POST", "/tasks/{id}/cancel", OPERATE, || post(pages::tasks::changes::cancel_one)),
    route("POST", "/retry", OPERATE, || post(pages::tasks::changes::retry_selected)),
    route("POST", "/cancel", OPERATE, || post(pages::tasks::changes::cancel_selected)),
    route("GET", "/failures", READ, || get(pages::failures::page)),
    route("GET", "/schedules", READ, || get(pages::schedules::page)),
    route("GET", "/schedules/{id}", READ, || get(pages::schedule::page)),
    route("POST", "/schedules/{id}/run", OPERATE, || post(pages::tasks::changes::run_schedule)),
    route("POST", "/schedules/{id}/pause", OPERATE, || post(pages::tasks::changes::pause_schedule)),
    route("POST", "/schedules/{id}/resume", OPERATE, || post(pages::tasks::changes::resume_schedule)),
    route("GET", "/runners", READ, || get(pages::runners::page)),
    route("GET", "/pause", OPERATE, || get(pages::pauses::form)),
    route("POST", "/pause", OPERATE, || post(pages::pauses::pause)),
    route("POST", "/resume", OPERATE, || post(pages::pauses::resume)),
    route("GET", "/classes", READ, || get(pages::classes::page)),
    route("GET", "/settings", READ, || get(pages::settings::page)),
    route("GET", "/events", READ, || get(pages::events::page)),
];

/// Returns the routes of both tables.
pub(crate) fn all_routes() -> impl Iterator<Item = &'static Route> {
    PAGES.iter().chain(OPERATIONS.iter().map(|operation| &operation.route))
}

/// Lists them, for programs.
pub(crate) fn listed() -> Value {
    let listed = |route: &Route| {
        let scope = route.may.map(Scope::as_str);
        json!({ "method": route.method, "path": route.path, "scope": scope, "checks_class": route.checks_class })
    };
    json!({ "routes": all_routes().map(listed).collect::<Vec<_>>() })
}

pub(crate) fn router(app: &App) -> Router {
    let mut router = Router::new();
    for route in all_routes() {
        let body_bytes = route.body_bytes;
        let limited =
            from_fn(move |request: Request, next: Next| with_body_within(body_bytes, REFUSAL_LIMIT, request, next));
        let handler = (route.handler)().layer::<_, Infallible>(from_fn(with_utf8_form));
        let mut handler = handler.layer(DefaultBodyLimit::max(body_bytes)).layer(limited);
        if let Some(may) = route.may {
            let (app, needs) = (app.clone(), Needs { may, checks_class: route.checks_class });
            handler = handler
                .layer(from_fn(move |request: Request, next: Next| with_login(app.clone(), needs, request, next)));
        }
        router = router.route(route.path, handler);
    }
    router
        .fallback(pages::not_found)
        .layer(from_fn(in_time))
        .layer(from_fn_with_state(app.clone(), every_request))
        .with_state(app.clone())
}

/// The words become a problem or a page like every other refusal.
async fn in_time(request: Request, next: Next) -> Response {
    let late = (StatusCode::SERVICE_UNAVAILABLE, "the request took too long; what it asked for may still be done");
    tokio::time::timeout(REQUEST_LIMIT, next.run(request)).await.unwrap_or_else(|_| late.into_response())
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, Bytes};
    use tokio::runtime::Builder;
    use tokio::time::Instant;
    use tower::ServiceExt as _;

    use super::*;

    /// The clock of the runtime goes to the next timer while nothing else happens, so nothing waits.
    #[test]
    fn a_body_that_does_not_end_is_answered_after_the_limit() {
        let router: Router = Router::new().route("/", post(|_: Bytes| async {})).layer(from_fn(in_time));
        let endless = Body::from_stream(tokio_stream::pending::<Result<Bytes, Infallible>>());
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        runtime.block_on(async {
            let started = Instant::now();
            let request = Request::post("/").body(endless).expect("a request");
            let Ok(answer) = router.oneshot(request).await;
            assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert!(started.elapsed() >= REQUEST_LIMIT && started.elapsed() < 2 * REQUEST_LIMIT);
        });
    }

    #[test]
    fn only_the_way_to_a_login_is_open_to_everybody() {
        let open: Vec<&str> = all_routes().filter(|route| route.may.is_none()).map(|route| route.path).collect();
        assert_eq!(open, ["/login", "/login", "/logout", "/assets/{file}"]);
    }

    #[test]
    fn a_route_that_changes_something_needs_more_than_to_read() {
        for route in all_routes().filter(|route| route.method != "GET" && route.may.is_some()) {
            assert!(route.may > READ, "{} {}", route.method, route.path);
        }
    }
}
