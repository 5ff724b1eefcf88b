//! What the environment says: variables and the XDG directories. The only place that reads variables.

use std::env::VarError;
use std::path::{Path, PathBuf};
use std::time::Duration;

use taskqueue_domain::time::when::parse_duration;

/// A variable of ours is set to something that is no text. It does not count as not set: who set it meant something by it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value of the variable {name} is not UTF-8")]
pub struct BadVariable {
    /// Its name.
    pub name: &'static str,
}

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
    ///
    /// # Errors
    /// A variable of ours that is no text, also where an option would count instead.
    pub fn own() -> Result<Self, BadVariable> {
        Ok(Self {
            database: own_variable("TASKQUEUE_DATABASE_URL")?,
            config: own_variable("TASKQUEUE_CONFIG")?.map(PathBuf::from),
            ..Self::of_others()
        })
    }

    /// The same without the variables of ours.
    #[must_use]
    pub fn of_others() -> Self {
        let directories = etcetera::base_strategy::Xdg::new().ok();
        Self {
            database: None,
            postgres_ssl_mode: variable("PGSSLMODE"),
            config: None,
            is_supervised: variable("NOTIFY_SOCKET").is_some(),
            config_home: directories.as_ref().map(etcetera::BaseStrategy::config_dir),
            state_home: directories.as_ref().and_then(etcetera::BaseStrategy::state_dir),
        }
    }

    /// Where this user's configuration belongs, whether there is one or not; the system's is for those without a home.
    #[must_use]
    pub fn own_config_path(&self) -> PathBuf {
        self.config_candidates().into_iter().next().unwrap_or_default()
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
    /// `TASKQUEUE_EVENTS_TOKEN`, which a coprocess sets for what it starts for one of its runs, else `TASKQUEUE_RUN_TOKEN`.
    pub token: Option<String>,
    /// `TASKQUEUE_ON_BEHALF_OF`: the token of the run for which its runner executes this command.
    pub on_behalf_of: Option<String>,
    /// `TASKQUEUE_RUNNER_PID`: that runner.
    pub runner_pid: Option<String>,
}

impl HandlerEnvironment {
    /// That of this process, which was started by a handler.
    ///
    /// # Errors
    /// One of them is no text.
    pub fn own() -> Result<Self, BadVariable> {
        Ok(Self {
            socket: own_variable("TASKQUEUE_EVENTS_SOCKET")?,
            token: own_variable("TASKQUEUE_EVENTS_TOKEN")?.or(own_variable("TASKQUEUE_RUN_TOKEN")?),
            on_behalf_of: own_variable("TASKQUEUE_ON_BEHALF_OF")?,
            runner_pid: own_variable("TASKQUEUE_RUNNER_PID")?,
        })
    }
}

/// Where the journal listens, unless TASKQUEUE_JOURNAL_SOCKET says otherwise.
const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";

/// What systemd told a service about its journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEnvironment {
    /// `JOURNAL_STREAM`: device and inode of the stream that leads there.
    pub stream: String,
    /// `TASKQUEUE_JOURNAL_SOCKET`, or where it always is.
    pub socket: PathBuf,
}

impl JournalEnvironment {
    /// That of this process; `None` where there is no journal.
    ///
    /// # Errors
    /// The variable of ours is no text.
    pub fn own() -> Result<Option<Self>, BadVariable> {
        let socket = own_variable("TASKQUEUE_JOURNAL_SOCKET")?.unwrap_or_else(|| JOURNAL_SOCKET.to_owned());
        Ok(variable("JOURNAL_STREAM").map(|stream| Self { stream, socket: socket.into() }))
    }
}

/// `TASKQUEUE_CLAIMANT`: the name of the worker that called us.
///
/// # Errors
/// It is no text.
pub fn claimant_of_environment() -> Result<Option<String>, BadVariable> {
    own_variable("TASKQUEUE_CLAIMANT")
}

/// `TASKQUEUE_COMPLETE`: the shell that asks what may stand in a command line. What no shell of ours wrote there is none.
#[must_use]
pub fn completing_shell() -> Option<String> {
    variable("TASKQUEUE_COMPLETE")
}

/// `TASKQUEUE_COMPLETE_TIMEOUT`: how long it waits for the store. Who types hears of nothing that is wrong.
#[must_use]
pub fn completion_limit() -> Option<Duration> {
    variable("TASKQUEUE_COMPLETE_TIMEOUT").and_then(|text| parse_duration(&text).ok())
}

/// A word of a command line that is not finished, as the shell will pass it on: with the home directory in place of `~`.
#[must_use]
pub fn with_home(word: &str) -> String {
    let below_home = word.strip_prefix("~/").zip(etcetera::home_dir().ok());
    below_home.map_or_else(|| word.to_owned(), |(rest, home)| home.join(rest).to_string_lossy().into_owned())
}

fn variable(name: &'static str) -> Option<String> {
    own_variable(name).ok().flatten()
}

/// The PATH of this process; `None` if it is not set, or not UTF-8.
#[must_use]
pub fn own_search_path() -> Option<String> {
    own_variable("PATH").ok().flatten()
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads variables")]
fn own_variable(name: &'static str) -> Result<Option<String>, BadVariable> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(BadVariable { name }),
    }
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
