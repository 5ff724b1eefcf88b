//! All routes, each with the scope that it needs. The router is made from this table alone, so that no route can be without one.

use std::future::{Ready, ready};
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::app::App;
use crate::guard::{every_request, with_scope};
use crate::{api, assets, pages, stream, worker};
use taskqueue_domain::limits::scope::Scope;

/// The largest body of a request, and of one that carries data or results.
const BODY_BYTES: usize = 64 << 10;
const DATA_BYTES: usize = 16 << 20;
/// How long a request may take, its body included; streams are answered before.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// An address, what it takes, and who may use it.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// `None`: everybody, without a login.
    pub(crate) may: Option<Scope>,
    handler: fn() -> MethodRouter<App>,
}

const fn route(
    method: &'static str,
    path: &'static str,
    may: Option<Scope>,
    handler: fn() -> MethodRouter<App>,
) -> Route {
    Route { method, path, may, handler }
}

const READ: Option<Scope> = Some(Scope::Read);
const QUEUE: Option<Scope> = Some(Scope::Queue);
const WORK: Option<Scope> = Some(Scope::Work);
const OPERATE: Option<Scope> = Some(Scope::Operate);

/// The table.
pub(crate) const ROUTES: &[Route] = &[
    route("GET", "/login", None, || get(pages::login::form)),
    route("POST", "/login", None, || post(pages::login::log_in)),
    route("POST", "/logout", None, || post(pages::login::log_out)),
    route("GET", "/assets/{file}", None, || get(assets::file)),
    route("GET", "/", READ, || get(pages::now::page)),
    route("GET", "/live", READ, || get(stream::changes)),
    route("GET", "/tasks", READ, || get(pages::tasks::page)),
    route("GET", "/tasks/{id}", READ, || get(pages::task::page)),
    route("GET", "/tasks/{id}/log", READ, || get(pages::log::page)),
    route("GET", "/tasks/{id}/edit", OPERATE, || get(pages::edit::form)),
    route("POST", "/tasks/{id}/edit", OPERATE, || {
        post(pages::edit::save).layer(DefaultBodyLimit::max(pages::edit::BODY_BYTES))
    }),
    route("POST", "/tasks/{id}/retry", OPERATE, || post(pages::changes::retry_one)),
    route("POST", "/tasks/{id}/cancel", OPERATE, || post(pages::changes::cancel_one)),
    route("POST", "/retry", OPERATE, || post(pages::changes::retry_selected)),
    route("POST", "/cancel", OPERATE, || post(pages::changes::cancel_selected)),
    route("GET", "/failures", READ, || get(pages::failures::page)),
    route("GET", "/schedules", READ, || get(pages::schedules::page)),
    route("POST", "/schedules/{id}/run", OPERATE, || post(pages::changes::run_schedule)),
    route("POST", "/schedules/{id}/pause", OPERATE, || post(pages::changes::pause_schedule)),
    route("POST", "/schedules/{id}/resume", OPERATE, || post(pages::changes::resume_schedule)),
    route("GET", "/runners", READ, || get(pages::runners::page)),
    route("POST", "/pause", OPERATE, || post(pages::changes::pause)),
    route("POST", "/resume", OPERATE, || post(pages::changes::resume)),
    route("GET", "/classes", READ, || get(pages::classes::page)),
    route("GET", "/settings", READ, || get(pages::settings::page)),
    route("GET", "/events", READ, || get(pages::events::page)),
    route("GET", "/api/v1", READ, || get(index)),
    route("GET", "/api/v1/status", READ, || get(api::status)),
    route("GET", "/api/v1/explanation", READ, || get(api::explain_queue)),
    route("GET", "/api/v1/tasks", READ, || get(api::tasks)),
    route("POST", "/api/v1/tasks", QUEUE, || post(api::queue).layer(DefaultBodyLimit::max(DATA_BYTES))),
    route("GET", "/api/v1/tasks/{id}", READ, || get(api::task)),
    route("GET", "/api/v1/tasks/{id}/explanation", READ, || get(api::explain)),
    route("POST", "/api/v1/tasks/{id}/retry", OPERATE, || post(api::retry)),
    route("POST", "/api/v1/tasks/{id}/cancel", OPERATE, || post(api::cancel)),
    route("POST", "/api/v1/claims", WORK, || post(worker::claim_runs)),
    route("POST", "/api/v1/runs/{id}/heartbeat", WORK, || post(worker::heartbeat)),
    route("POST", "/api/v1/runs/{id}/resolve", WORK, || {
        post(worker::resolve_run).layer(DefaultBodyLimit::max(DATA_BYTES))
    }),
    route("POST", "/api/v1/runs/{id}/release", WORK, || post(worker::release)),
    route("GET", "/api/v1/failures", READ, || get(api::failures)),
    route("GET", "/api/v1/schedules", READ, || get(api::schedules)),
    route("GET", "/api/v1/runners", READ, || get(api::runners)),
    route("GET", "/api/v1/events", READ, || get(api::events)),
];

/// Every address of the server, and the scope that it needs.
fn index() -> Ready<Json<Value>> {
    let routes: Vec<Value> = ROUTES
        .iter()
        .map(|route| json!({ "method": route.method, "path": route.path, "scope": route.may.map(Scope::as_str) }))
        .collect();
    ready(Json(json!({ "routes": routes })))
}

pub(crate) fn router(app: &App) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        let mut handler = (route.handler)();
        if let Some(may) = route.may {
            let app = app.clone();
            handler =
                handler.layer(from_fn(move |request: Request, next: Next| with_scope(app.clone(), may, request, next)));
        }
        router = router.route(route.path, handler);
    }
    router
        .fallback(pages::not_found)
        .layer(DefaultBodyLimit::max(BODY_BYTES))
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
    use super::*;

    #[test]
    fn only_the_way_to_a_login_is_open_to_everybody() {
        let open: Vec<&str> = ROUTES.iter().filter(|route| route.may.is_none()).map(|route| route.path).collect();
        assert_eq!(open, ["/login", "/login", "/logout", "/assets/{file}"]);
    }

    #[test]
    fn a_route_that_changes_something_needs_more_than_to_read() {
        for route in ROUTES.iter().filter(|route| route.method != "GET" && route.may.is_some()) {
            assert!(route.may > READ, "{} {}", route.method, route.path);
        }
    }
}
