//! The configuration: which classes there are and who handles them, and where the database is. Read at start, by a worker
//! again when it is told to, and passed down as plain values. Nobody else reads files of configuration or the environment.

mod announcements;
mod checks;
mod class;
mod environment;
pub mod file;
mod first;
mod protocol;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use taskqueue_domain::listen_address::ListenAddress;

pub use self::announcements::{Announcements, Notify};
pub use self::class::{ClassConfig, Classes};
pub use self::environment::{
    BadVariable, Environment, HandlerEnvironment, JournalEnvironment, claimant_of_environment, completing_shell,
    completion_limit, default_spool_path, default_store_path, own_search_path, with_home,
};
pub use self::first::{first_configuration, write_first};
pub use self::protocol::{CoprocessConfig, Protocol};

/// The configuration as it is in effect.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The file that it was read from, or that would be read if it were written.
    pub path: PathBuf,
    /// Whether there is one.
    pub exists: bool,
    /// Address of the database, as written.
    pub database: Option<String>,
    /// The directory on the local disk where outcomes of runs wait for a database that is away.
    pub spool: Option<PathBuf>,
    /// Whom handlers run as where their class does not say; the class `exec` always.
    pub user: Option<String>,
    /// How long a run may go on after the first signal to stop.
    pub stop_wait: Duration,
    /// How long a connection that the server refuses for now is retried; `None`: as long as the command needs it.
    pub connect_wait: Option<Duration>,
    /// How many runs a worker executes at once, where its command line does not say; `None`: as many as there are processors.
    pub work_slots: Option<usize>,
    /// Where a worker tells how it stands.
    pub metrics: Option<ListenAddress>,
    /// Who is told of what happens.
    pub announcements: Announcements,
    /// The configured classes.
    pub classes: Classes,
    /// Whether the built-in class `exec` may be used; `None`: on for a SQLite store that is
    /// the user's own, off elsewhere.
    pub exec_enabled: Option<bool>,
}

impl Config {
    /// Everything has its default.
    fn none(path: PathBuf) -> Self {
        Self { path, stop_wait: file::DEFAULT_STOP_WAIT, ..Self::default() }
    }
}

/// The configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {message}", path.display())]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong, and where in it.
    pub message: String,
    /// Whether it could not be read at all.
    pub is_unreadable: bool,
}

impl ConfigError {
    fn new(path: &Path, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), message: message.into(), is_unreadable: false }
    }

    fn unreadable(path: &Path, error: &io::Error) -> Self {
        // What can be read and is no text is wrong in itself.
        Self { is_unreadable: error.kind() != io::ErrorKind::InvalidData, ..Self::new(path, error.to_string()) }
    }
}

/// Reads the configuration: the file named, else the first that exists of the user's and the system's, and the files of
/// `conf.d` beside it. Without any file everything has its default; `/dev/null` names no file, and nothing beside it is read.
///
/// Nobody is waited for: a pipe or a device in the place of a file is an error.
///
/// # Errors
/// A named file that does not exist, one that cannot be read, an unknown key, a wrong type, a class that is defined twice.
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

/// The same from what somebody has just named on a command line, who may mean a pipe: `--config <(…)`, `--config /dev/stdin`, a FIFO
/// with a writer to come. It is read once, at the start, and its writer waited for. What was found, or named by a variable for
/// whatever comes, must be a file, because nobody expects that it waits; so must what is read again, because a pipe is empty
/// then. A device is none of what anybody means: `/dev/zero` has no end, and a terminal asks nobody for a configuration.
///
/// # Errors
/// As of [`load`].
pub fn load_file_or_pipe(path: &Path) -> Result<Config, ConfigError> {
    if file::is_null_device(path) {
        return Ok(Config::none(path.to_owned()));
    }
    with_parts(file::from_text(path, &file::text_of_file_or_pipe(path)?)?)
}

fn with_parts(mut config: Config) -> Result<Config, ConfigError> {
    for part in file::parts_beside(&config.path)? {
        for class in file::read_classes(&part)? {
            config.classes.add(class).map_err(|message| ConfigError::new(&part, message))?;
        }
    }
    if let Some(user) = &config.user {
        config.classes.set_default_user(user);
    }
    Ok(config)
}

/// Where nobody may look there may be a configuration, and another one must not take its place.
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
