//! The configuration: the classes with their handlers, and the address of the database. It is read at the start, and again when
//! a worker reloads. Other modules get plain values; only this module reads configuration files and the environment.

mod announcements;
mod checks;
mod class;
mod class_argument;
mod crontab;
mod document;
mod edit;
mod environment;
pub mod file;
mod first;
mod protocol;
mod schedules;
mod web;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use taskqueue_domain::monitoring::listen_address::ListenAddress;
use taskqueue_domain::task::choosing::class_patterns::ClassPatterns;

pub use self::announcements::{Announcements, Notify};
pub use self::class::{ClassConfig, Classes};
pub use self::crontab::{CrontabContext, from_crontab};
pub use self::edit::{
    EditedConfig, NewClass, text_to_edit, with_class, with_token, without_class, without_token, write_edited,
};
pub use self::environment::{
    BadVariable, Environment, HandlerEnvironment, JournalEnvironment, claimant_of_environment, completing_shell,
    completion_limit, default_spool_path, default_store_path, named_variable, own_search_path, own_trace,
    take_address_of_runner, token_uses_path, with_home,
};
pub use self::first::{first_configuration, write_first};
pub use self::protocol::{CoprocessConfig, Protocol};
pub use self::schedules::{ScheduleEntry, ScheduleReader, Schedules};
pub(crate) use self::schedules::{changed_keys, definition};
pub use self::web::{TrustedProxy, WebToken, WebUser, WebUsers, check_token_name, token_classes};

/// The configuration in effect.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The file that was read, or the default path if there is none.
    pub path: PathBuf,
    /// Whether the file exists.
    pub exists: bool,
    /// The address of the database, as written.
    pub database: Option<String>,
    /// The directory on the local disk where outcomes of runs are kept while the database is unreachable.
    pub spool: Option<PathBuf>,
    /// The user for handlers whose class names none, and always for the class `exec`.
    pub user: Option<String>,
    /// How long runs may continue after the first signal to stop.
    pub stop_wait: Duration,
    /// How long to retry a connection that the server refuses for now; `None`: as long as the command needs.
    pub connect_wait: Option<Duration>,
    /// How many runs a worker executes at once unless its command line sets it; `None`: one per processor.
    pub work_slots: Option<usize>,
    /// The address where a worker serves its metrics.
    pub metrics: Option<ListenAddress>,
    /// Notices and hooks.
    pub announcements: Announcements,
    /// The configured classes.
    pub classes: Classes,
    /// The configured schedules.
    pub schedules: Schedules,
    /// Whether the built-in class `exec` may be used; `None`: yes for a SQLite store of this user, no for other stores.
    pub exec_enabled: Option<bool>,
    /// Who may log in at the web server, by name.
    pub web_tokens: BTreeMap<String, WebToken>,
    /// The people whom a proxy before the web server names.
    pub web_users: Option<WebUsers>,
    /// The classes whose data and results the web server shows to no login.
    pub web_hidden_data: Option<ClassPatterns>,
}

impl Config {
    /// Returns the defaults.
    fn none(path: PathBuf) -> Self {
        Self { path, stop_wait: file::DEFAULT_STOP_WAIT, ..Self::default() }
    }
}

/// The configuration is invalid or unreadable.
#[derive(Debug, Default, thiserror::Error)]
#[error("{}: {message}", path.display())]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// Everything that is wrong, with the line and the column of each.
    pub message: String,
    /// A shorter message, if there are several mistakes; `report` lists them.
    pub headline: Option<String>,
    /// Lines for people: the place of each mistake in the text.
    pub report: Vec<String>,
    /// Whether the file could not be read at all.
    pub is_unreadable: bool,
}

impl ConfigError {
    fn new(path: &Path, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), message: message.into(), ..Self::default() }
    }

    fn unreadable(path: &Path, error: &io::Error) -> Self {
        // A file that is readable but not text is invalid, not unreadable.
        Self { is_unreadable: error.kind() != io::ErrorKind::InvalidData, ..Self::new(path, error.to_string()) }
    }
}

/// Reads the configuration and the files of `conf.d` beside it.
///
/// The file is the named one, or else the first that exists of the user's and the system's. Without any file, the defaults
/// apply; `/dev/null` also means the defaults, and `conf.d` is not read then. A pipe or a device is an error, so that this
/// never blocks.
///
/// # Errors
/// Returns an error for a named file that does not exist, an unreadable file, an unknown key, a wrong type, or a class that is
/// defined twice: everything that is wrong with the first such file.
pub fn load(named: Option<&Path>, environment: &Environment) -> Result<Config, ConfigError> {
    let found = match named {
        Some(path) => Some(path.to_owned()),
        None => first_that_exists(environment)?,
    };
    let Some(path) = found else { return Ok(Config::none(environment.own_config_path())) };
    if file::is_null_device(&path) {
        return Ok(Config::none(path));
    }
    with_parts(file::from_text(&path, &file::text_of(&path)?)?)
}

/// Like [`load`], for a path from the command line, which may also be a pipe: `--config <(…)`, `--config /dev/stdin`, or a
/// FIFO.
///
/// The pipe is read once, at the start, and this waits for its writer. A path from a variable or a default must be a regular
/// file, because no user expects it to block. So must a file that is read again, because the pipe is empty by then. Devices are
/// refused: `/dev/zero` never ends, and a terminal would prompt for nothing.
///
/// # Errors
/// Returns the same errors as [`load`].
pub fn load_file_or_pipe(path: &Path) -> Result<Config, ConfigError> {
    if file::is_null_device(path) {
        return Ok(Config::none(path.to_owned()));
    }
    with_parts(file::from_text(path, &file::text_of_file_or_pipe(path)?)?)
}

fn with_parts(mut config: Config) -> Result<Config, ConfigError> {
    let parts = file::parts_beside(&config.path)?;
    config.schedules.add_directory(&file::parts_directory(&config.path));
    for part in parts {
        file::add_part(&mut config, &part)?;
    }
    if let Some(user) = &config.user {
        config.classes.set_default_user(user);
    }
    Ok(config)
}

/// Returns the first configuration file that exists. A directory that cannot be read is an error, because it may contain one.
fn first_that_exists(environment: &Environment) -> Result<Option<PathBuf>, ConfigError> {
    for path in environment.config_candidates() {
        match path.try_exists() {
            Ok(true) => return Ok(Some(path)),
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
            Err(error) => return Err(ConfigError::unreadable(&path, &error)),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
