//! What all handlers share.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use serde_json::Value;

use crate::configuration::CurrentConfiguration;
use crate::following::charts::Charts;
use crate::following::feed::Feed;
use crate::following::live::Live;
use crate::following::logs::Logs;
use crate::logins::login::{Login, digest};
use crate::logins::proxy_users::Peer;
use crate::logins::rates::Rates;
use crate::logins::shares::Shares;
use crate::querying::cached::Cached;
use crate::querying::database::Database;
use crate::querying::hidden::Answered;
use crate::serving::https::Https;
use crate::serving::problem::Problem;
use taskqueue_domain::limits::limit::Rate;
use taskqueue_domain::limits::scope::Scope;
use taskqueue_domain::monitoring::listen_address::ListenAddress;
use taskqueue_domain::task::choosing::class_patterns::ClassPatterns;
use taskqueue_engine::inspect::doctor::{Trouble, examine_queue};
use taskqueue_engine::inspect::status::{ClassLine, count_classes};
use taskqueue_engine::{Context, EngineResult};

/// How often the classes are counted, and how often the tables are examined.
const COUNT_CLASSES_EVERY: Duration = Duration::from_secs(3);
const EXAMINE_EVERY: Duration = Duration::from_secs(10);
/// How many requests and streams a login may have open.
const OPEN_REQUESTS_OF_LOGIN: usize = 800;

/// How the server is to behave.
#[derive(Clone, Debug)]
pub struct WebOptions {
    /// Where it listens.
    pub listen: ListenAddress,
    /// Names by which it may be addressed, beside those of this machine's loopback: `queue.example.org`, with the port if it is
    /// neither a usual one nor that of `listen`.
    pub hosts: Vec<String>,
    /// How HTTPS is provided.
    pub https: Https,
    /// Whether every change is refused.
    pub is_read_only: bool,
    /// How many requests a login may send, and within which time.
    pub rate: Rate,
}

/// What the interface says of itself. The handlers get it from here, because its tables name the handlers.
#[derive(Clone, Copy)]
pub(crate) struct SelfDescription {
    /// All routes with their scopes.
    pub(crate) routes: fn() -> Value,
    /// The OpenAPI document.
    pub(crate) openapi: fn() -> &'static str,
}

/// The state of the server.
#[derive(Clone)]
pub(crate) struct App(Arc<Shared>);

/// What all requests use.
pub(crate) struct Shared {
    pub(crate) options: WebOptions,
    pub(crate) description: SelfDescription,
    configuration: CurrentConfiguration,
    database: Database,
    pub(crate) live: Live,
    pub(crate) charts: Charts,
    /// The work of the classes, and whether some are not counted.
    pub(crate) classes: Cached<(Vec<ClassLine>, bool)>,
    /// What `doctor` finds in the tables.
    pub(crate) troubles: Cached<Vec<Trouble>>,
    pub(crate) logs: Logs,
    pub(crate) feed: Feed,
    pub(crate) rates: Rates,
    /// The requests that each login has open, streams too.
    pub(crate) open_requests: Shares<String>,
}

impl App {
    pub(crate) fn new(
        options: WebOptions,
        description: SelfDescription,
        configuration: CurrentConfiguration,
        database: Database,
    ) -> Self {
        let (live, feed) = (Live::new(database.clone()), Feed::new(database.clone()));
        let classes = Cached::new(database.clone(), COUNT_CLASSES_EVERY, count_classes);
        let troubles = Cached::new(database.clone(), EXAMINE_EVERY, examine_queue);
        let (charts, rates) = (Charts::new(database.clone()), Rates::new(options.rate));
        let logs = Logs::new(database.clone(), !options.is_read_only);
        Self(Arc::new(Shared {
            options,
            description,
            configuration,
            database,
            live,
            charts,
            logs,
            classes,
            troubles,
            feed,
            rates,
            open_requests: Shares::of_size(OPEN_REQUESTS_OF_LOGIN),
        }))
    }

    /// Returns the login with this token, by the configuration as it is now. Its use is noted.
    pub(crate) async fn login(&self, token: &str) -> Option<Login> {
        self.login_with(&digest(token)).await
    }

    /// Returns the login that a proxy names.
    pub(crate) async fn named_login(&self, peer: Peer, headers: &HeaderMap) -> Option<Login> {
        let key = self.configuration.read().await.proxy_users.named(peer, headers)?;
        self.login_with(&key).await
    }

    /// Returns the login whose token has this digest. A server that only reads grants no more than that, so its pages show no
    /// buttons.
    async fn login_with(&self, sha256: &str) -> Option<Login> {
        let mut login = self.configuration.read().await.logins.find(sha256).cloned()?;
        self.configuration.note_use(&login);
        if self.options.is_read_only {
            login.may = Scope::Read;
        }
        Some(login)
    }

    /// Returns the classes whose data is hidden.
    pub(crate) fn hidden_data(&self) -> Option<ClassPatterns> {
        self.configuration.last().hidden_data.clone()
    }
}

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// Who sends a request, and the server that answers it.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) app: App,
    pub(crate) login: Login,
}

impl Caller {
    /// Checks that the token of the login was not removed since the request began. The further use is noted.
    pub(crate) async fn check(&self) -> Result<(), Problem> {
        let current = self.app.login_with(&self.login.sha256).await;
        if current.as_ref() == Some(&self.login) { Ok(()) } else { Err(Problem::no_login()) }
    }

    /// Calls a use case for the login. In the events it appears as `web:NAME`.
    pub(crate) async fn call<T: Answered + Send + 'static>(
        &self,
        act: impl FnOnce(&mut Context) -> EngineResult<T> + Send + 'static,
    ) -> Result<T, Problem> {
        self.app.database.call(&self.user(), self.limited(act)).await
    }

    /// Like [`Self::call`]. The answer, which can be large, is shown in the thread that asks the database.
    pub(crate) async fn show<T: Answered, V: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Context) -> EngineResult<T> + Send + 'static,
        show: impl FnOnce(T) -> V + Send + 'static,
    ) -> Result<V, Problem> {
        self.app.database.call_or_undo(&self.user(), self.limited(act), show, |_, _| ()).await
    }

    /// Like [`Self::call`]. If the client goes before it gets its answer, `undo` gets that.
    pub(crate) async fn call_or_undo<T: Answered + Send + 'static>(
        &self,
        act: impl FnOnce(&mut Context) -> EngineResult<T> + Send + 'static,
        undo: impl FnOnce(&mut Context, T) + Send + 'static,
    ) -> Result<T, Problem> {
        self.app.database.call_or_undo(&self.user(), self.limited(act), |answered| answered, undo).await
    }

    /// Returns the name of the login in events.
    fn user(&self) -> String {
        format!("web:{}", self.login.name)
    }

    /// Returns a use case to which only the tasks of the login's classes exist.
    fn limited<T, A>(&self, act: A) -> impl FnOnce(&mut Context) -> T + Send + 'static + use<T, A>
    where
        A: FnOnce(&mut Context) -> T + Send + 'static,
    {
        let classes = self.login.classes.clone();
        move |ctx| ctx.limited_to(classes, act)
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        // The guard adds the login to every request that it lets pass.
        let login = parts.extensions.get::<Login>().cloned().ok_or_else(Problem::no_login)?;
        Ok(Self { app: app.clone(), login })
    }
}
