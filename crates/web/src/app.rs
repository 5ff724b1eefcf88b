//! What all handlers share.

use std::sync::Arc;

use crate::charts::Charts;
use crate::database::Database;
use crate::live::Live;
use crate::login::{Login, Logins};
use crate::problem::Problem;
use taskqueue_domain::monitoring::listen_address::ListenAddress;
use taskqueue_engine::{Context, EngineResult};

/// How the server is to behave.
#[derive(Clone, Debug)]
pub struct WebOptions {
    /// Where it listens.
    pub listen: ListenAddress,
    /// Names by which it may be addressed, beside those of this machine's loopback: `queue.example.org`, with the port if it is
    /// no usual one.
    pub hosts: Vec<String>,
    /// Whether a proxy before it speaks TLS: cookies are then marked so, and any address may be listened at.
    pub is_behind_proxy: bool,
    /// Whether every change is refused.
    pub is_read_only: bool,
    /// Who may do what.
    pub logins: Logins,
}

/// The state of the server.
#[derive(Clone)]
pub(crate) struct App(Arc<Shared>);

struct Shared {
    options: WebOptions,
    database: Database,
    live: Live,
    charts: Charts,
}

impl App {
    pub(crate) fn new(options: WebOptions, database: Database) -> Self {
        let (live, charts) = (Live::new(database.clone()), Charts::new(database.clone()));
        Self(Arc::new(Shared { options, database, live, charts }))
    }

    pub(crate) fn options(&self) -> &WebOptions {
        &self.0.options
    }

    pub(crate) fn live(&self) -> &Live {
        &self.0.live
    }

    pub(crate) fn charts(&self) -> &Charts {
        &self.0.charts
    }

    /// Calls a use case for a login. In the events it appears as `web:NAME`.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        login: &Login,
        act: impl FnOnce(&mut Context) -> EngineResult<T> + Send + 'static,
    ) -> Result<T, Problem> {
        self.0.database.call(&format!("web:{}", login.name), act).await
    }
}
