//! What the environment says: variables and the XDG directories. The only place that reads variables.

use std::path::{Path, PathBuf};

/// The part of the environment that the configuration depends on.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `TASKQUEUE_DATABASE_URL`
    pub database: Option<String>,
    /// `PGSSLMODE`, which libpq reads where an address names no mode.
    pub postgres_ssl_mode: Option<String>,
    /// `TASKQUEUE_CONFIG`
    pub config: Option<PathBuf>,
    /// Whether a service manager waits for news, at the socket in `NOTIFY_SOCKET`.
    pub is_supervised: bool,
    /// `$XDG_CONFIG_HOME`, else `~/.config`
    pub config_home: Option<PathBuf>,
    /// `$XDG_STATE_HOME`, else `~/.local/state`
    pub state_home: Option<PathBuf>,
}

/// Where the system's configuration lies.
const SYSTEM_CONFIG: &str = "/etc/taskqueue/config.toml";

impl Environment {
    /// That of this process.
    #[must_use]
    pub fn own() -> Self {
        let directories = etcetera::base_strategy::Xdg::new().ok();
        Self {
            database: variable("TASKQUEUE_DATABASE_URL"),
            postgres_ssl_mode: variable("PGSSLMODE"),
            config: variable("TASKQUEUE_CONFIG").map(PathBuf::from),
            is_supervised: variable("NOTIFY_SOCKET").is_some(),
            config_home: directories.as_ref().map(etcetera::BaseStrategy::config_dir),
            state_home: directories.as_ref().and_then(etcetera::BaseStrategy::state_dir),
        }
    }

    pub(super) fn config_candidates(&self) -> Vec<PathBuf> {
        let user = self.config_home.as_ref().map(|home| home.join("taskqueue/config.toml"));
        user.into_iter().chain([PathBuf::from(SYSTEM_CONFIG)]).collect()
    }
}

/// What the runner told a handler about how to reach it.
#[derive(Clone, Debug, Default)]
pub struct HandlerEnvironment {
    /// `TASKQUEUE_EVENTS_SOCKET`
    pub socket: Option<String>,
    /// `TASKQUEUE_RUN_TOKEN`
    pub token: Option<String>,
}

impl HandlerEnvironment {
    /// That of this process, which was started by a handler.
    #[must_use]
    pub fn own() -> Self {
        Self { socket: variable("TASKQUEUE_EVENTS_SOCKET"), token: variable("TASKQUEUE_RUN_TOKEN") }
    }
}

/// `TASKQUEUE_CLAIMANT`: the name of the worker that called us.
#[must_use]
pub fn claimant_of_environment() -> Option<String> {
    variable("TASKQUEUE_CLAIMANT")
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads variables")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The spool of a person who named none: a directory under the XDG state directory.
#[must_use]
pub fn default_spool_path(environment: &Environment) -> Option<PathBuf> {
    environment.state_home.as_deref().map(|home: &Path| home.join("taskqueue/spool"))
}

/// The store of a person who named none: a file under the XDG state directory.
#[must_use]
pub fn default_store_path(environment: &Environment) -> Option<PathBuf> {
    environment.state_home.as_deref().map(|home: &Path| home.join("taskqueue/taskqueue.db"))
}
