//! The environment: variables and the XDG directories. Only this file reads variables.

use std::env::VarError;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use taskqueue_domain::task::trace::Trace;
use taskqueue_domain::time::when::parse_duration;
use taskqueue_process::children::address_handover::receive_address;

/// A variable of taskqueue has a value that is not UTF-8. That is an error, because ignoring it would hide what the user set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value of the variable {name} is not UTF-8")]
pub struct BadVariable {
    /// The name of the variable.
    pub name: &'static str,
}

/// The part of the environment that the configuration depends on.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `TASKQUEUE_DATABASE_URL`, or the address that a runner gave to this command.
    pub database: Option<String>,
    /// `TASKQUEUE_CONFIG`
    pub config: Option<PathBuf>,
    /// Whether a service manager expects notifications at the socket in `NOTIFY_SOCKET`.
    pub is_supervised: bool,
    /// `$XDG_CONFIG_HOME`, else `~/.config`
    pub config_home: Option<PathBuf>,
    /// `$XDG_STATE_HOME`, else `~/.local/state`
    pub state_home: Option<PathBuf>,
}

/// The path of the system-wide configuration.
const SYSTEM_CONFIG: &str = "/etc/taskqueue/config.toml";

impl Environment {
    /// Reads the environment of this process.
    ///
    /// # Errors
    /// Returns an error if a variable of taskqueue is not UTF-8, even if an option overrides it.
    pub fn own() -> Result<Self, BadVariable> {
        let given = GIVEN_ADDRESS.get().cloned();
        Ok(Self {
            database: if given.is_some() { given } else { own_variable("TASKQUEUE_DATABASE_URL")? },
            config: own_variable("TASKQUEUE_CONFIG")?.map(PathBuf::from),
            ..Self::of_others()
        })
    }

    /// Reads the environment without the variables of taskqueue.
    #[must_use]
    pub fn of_others() -> Self {
        let directories = etcetera::base_strategy::Xdg::new().ok();
        Self {
            database: None,
            config: None,
            is_supervised: variable("NOTIFY_SOCKET").is_some(),
            config_home: directories.as_ref().map(etcetera::BaseStrategy::config_dir),
            state_home: directories.as_ref().and_then(etcetera::BaseStrategy::state_dir),
        }
    }

    /// Returns the environment of a program that cron or systemd starts for this user: it knows only the home directory.
    #[must_use]
    pub fn of_services() -> Self {
        let home = etcetera::home_dir().ok();
        Self {
            config_home: home.as_ref().map(|home| home.join(".config")),
            state_home: home.map(|home| home.join(".local/state")),
            ..Self::default()
        }
    }

    /// Returns the path of this user's configuration, whether it exists or not; without a home directory, that of the system.
    #[must_use]
    pub fn own_config_path(&self) -> PathBuf {
        self.config_candidates().into_iter().next().unwrap_or_default()
    }

    pub(super) fn config_candidates(&self) -> Vec<PathBuf> {
        let user = self.config_home.as_ref().map(|home| home.join("taskqueue/config.toml"));
        user.into_iter().chain([PathBuf::from(SYSTEM_CONFIG)]).collect()
    }
}

/// The address of the database that a runner gave to this command, so that it is in no environment.
static GIVEN_ADDRESS: OnceLock<String> = OnceLock::new();

/// Asks the runner that executes this command for a handler for the address of the database and for the standard input of the
/// command. The process must be hidden already.
///
/// # Errors
/// The runner has ended, or did not start this command.
pub fn take_address_of_runner() -> io::Result<()> {
    let _ = GIVEN_ADDRESS.set(receive_address()?);
    Ok(())
}

/// Variables with which a handler reaches its runner.
#[derive(Clone, Debug, Default)]
pub struct HandlerEnvironment {
    /// `TASKQUEUE_EVENTS_SOCKET`
    pub socket: Option<String>,
    /// `TASKQUEUE_EVENTS_TOKEN`, which a coprocess sets for programs that it starts for a run, else `TASKQUEUE_RUN_TOKEN`.
    pub token: Option<String>,
    /// `TASKQUEUE_ON_BEHALF_OF`: the token of the run for which the runner executes this command.
    pub on_behalf_of: Option<String>,
    /// `TASKQUEUE_RUNNER_PID`: the PID of that runner.
    pub runner_pid: Option<String>,
}

impl HandlerEnvironment {
    /// Reads the environment of this process, which a handler has started.
    ///
    /// # Errors
    /// Returns an error if one of the variables is not UTF-8.
    pub fn own() -> Result<Self, BadVariable> {
        Ok(Self {
            socket: own_variable("TASKQUEUE_EVENTS_SOCKET")?,
            token: own_variable("TASKQUEUE_EVENTS_TOKEN")?.or(own_variable("TASKQUEUE_RUN_TOKEN")?),
            on_behalf_of: own_variable("TASKQUEUE_ON_BEHALF_OF")?,
            runner_pid: own_variable("TASKQUEUE_RUNNER_PID")?,
        })
    }
}

/// The socket of the journal, unless TASKQUEUE_JOURNAL_SOCKET names another one.
const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";

/// How a service reaches the systemd journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEnvironment {
    /// `JOURNAL_STREAM`: device and inode of the stream that is connected to the journal.
    pub stream: String,
    /// `TASKQUEUE_JOURNAL_SOCKET`, or the default path.
    pub socket: PathBuf,
}

impl JournalEnvironment {
    /// Reads the environment of this process; `None` if there is no journal.
    ///
    /// # Errors
    /// Returns an error if TASKQUEUE_JOURNAL_SOCKET is not UTF-8.
    pub fn own() -> Result<Option<Self>, BadVariable> {
        let socket = own_variable("TASKQUEUE_JOURNAL_SOCKET")?.unwrap_or_else(|| JOURNAL_SOCKET.to_owned());
        Ok(variable("JOURNAL_STREAM").map(|stream| Self { stream, socket: socket.into() }))
    }
}

/// Returns `TASKQUEUE_CLAIMANT`: the name of the claimant that called this program.
///
/// # Errors
/// Returns an error if it is not UTF-8.
pub fn claimant_of_environment() -> Result<Option<String>, BadVariable> {
    own_variable("TASKQUEUE_CLAIMANT")
}

/// Returns `TASKQUEUE_COMPLETE`: the shell that requests completions. `None` if no shell set a usable value.
#[must_use]
pub fn completing_shell() -> Option<String> {
    variable("TASKQUEUE_COMPLETE")
}

/// Returns `TASKQUEUE_COMPLETE_TIMEOUT`: how long completion waits for the store. A bad value is ignored, because completion
/// prints no errors.
#[must_use]
pub fn completion_limit() -> Option<Duration> {
    variable("TASKQUEUE_COMPLETE_TIMEOUT").and_then(|text| parse_duration(&text).ok())
}

/// Replaces a leading `~/` of an unfinished word by the home directory, as the shell will.
#[must_use]
pub fn with_home(word: &str) -> String {
    let below_home = word.strip_prefix("~/").zip(etcetera::home_dir().ok());
    below_home.map_or_else(|| word.to_owned(), |(rest, home)| home.join(rest).to_string_lossy().into_owned())
}

fn variable(name: &'static str) -> Option<String> {
    own_variable(name).ok().flatten()
}

/// Returns the trace context and the correlation id in the environment of this process.
///
/// # Errors
/// The correlation id is invalid.
pub fn own_trace() -> Result<Trace, String> {
    Trace::of_variables(variable)
}

/// Returns the PATH of this process; `None` if it is not set or not UTF-8.
#[must_use]
pub fn own_search_path() -> Option<String> {
    own_variable("PATH").ok().flatten()
}

/// Returns the value of a variable that the user named, also if it is empty; `None` if it is not set.
///
/// # Errors
/// Returns an error if the value is not UTF-8.
#[expect(clippy::disallowed_methods, reason = "the one place that reads variables")]
pub fn named_variable(name: &str) -> Result<Option<String>, String> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(format!("the value of the variable {name} is not UTF-8")),
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads variables")]
fn own_variable(name: &'static str) -> Result<Option<String>, BadVariable> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(BadVariable { name }),
    }
}

/// Returns the default spool: a directory below the XDG state directory.
#[must_use]
pub fn default_spool_path(environment: &Environment) -> Option<PathBuf> {
    environment.state_home.as_deref().map(|home: &Path| home.join("taskqueue/spool"))
}

/// Returns where the web server notes when tokens are used: a directory below the XDG state directory.
#[must_use]
pub fn token_uses_path(environment: &Environment) -> Option<PathBuf> {
    environment.state_home.as_deref().map(|home: &Path| home.join("taskqueue/web-tokens"))
}

/// Returns the default store: a file below the XDG state directory.
#[must_use]
pub fn default_store_path(environment: &Environment) -> Option<PathBuf> {
    environment.state_home.as_deref().map(|home: &Path| home.join("taskqueue/taskqueue.db"))
}
