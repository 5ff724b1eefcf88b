//! A row of the tables of routes.

use axum::routing::MethodRouter;

use crate::app::App;
use taskqueue_domain::limits::scope::Scope;

/// The largest body, unless a route says otherwise.
const BODY_BYTES: usize = 64 << 10;

/// An address, what it takes, and who may use it.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// `None`: everybody, without a login.
    pub(crate) may: Option<Scope>,
    /// Whether its handler checks the class, so that a login that is limited to classes may use it.
    pub(crate) checks_class: bool,
    /// The largest body of a request.
    pub(crate) body_bytes: usize,
    pub(crate) handler: fn() -> MethodRouter<App>,
}

pub(crate) const fn route(
    method: &'static str,
    path: &'static str,
    may: Option<Scope>,
    handler: fn() -> MethodRouter<App>,
) -> Route {
    Route { method, path, may, checks_class: false, body_bytes: BODY_BYTES, handler }
}

impl Route {
    pub(crate) const fn checks_class(self) -> Self {
        Self { checks_class: true, ..self }
    }

    pub(crate) const fn takes(self, body_bytes: usize) -> Self {
        Self { body_bytes, ..self }
    }
}
