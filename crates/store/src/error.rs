//! Errors of the store.

use diesel::result::DatabaseErrorKind;
pub use diesel::result::Error as DatabaseError;
use diesel::result::Error as DieselError;

use taskqueue_domain::task::new_task::QueueRefusal;

/// Result of the store.
pub type StoreResult<T> = Result<T, StoreError>;

/// An error of the store. No message contains a password.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// This program cannot use the address.
    #[error("{0}")]
    BadAddress(String),
    /// The database cannot be reached, or no longer.
    #[error("cannot reach the database {url}: {message}")]
    Unreachable {
        /// The address, without its password.
        url: String,
        /// The message of the client library, without the password.
        message: String,
        /// The reason, as far as known.
        failure: ConnectFailure,
    },
    /// The database has no tables of this program, or older ones than it needs.
    #[error("the database {url} has {pending} {} of taskqueue pending", if *pending == 1 { "migration" } else { "migrations" })]
    NotMigrated {
        /// The address, without its password.
        url: String,
        /// How many migrations are pending.
        pending: usize,
    },
    /// The file is a database of another program.
    #[error("the database {url} has tables, but none of taskqueue")]
    Foreign {
        /// The address.
        url: String,
    },
    /// The database was migrated by a newer program.
    #[error("the database {url} was migrated by a newer taskqueue ({version}); this one is too old for it")]
    NewerSchema {
        /// The address, without its password.
        url: String,
        /// The newest migration, which this program does not know.
        version: String,
    },
    /// The tables belong to a program before the first release, which no migration can change.
    #[error(
        "the database {url} has the tables of an older, unreleased taskqueue ({version}); this one cannot use them"
    )]
    OlderSchema {
        /// The address, without its password.
        url: String,
        /// The migration that this program no longer has.
        version: String,
    },
    /// The file or the server does not accept writes.
    #[error("the database {url} cannot be written: {message}")]
    ReadOnly {
        /// The address, without its password.
        url: String,
        /// The message of the client library.
        message: String,
    },
    /// The disk of the database is full.
    #[error("the database {url} cannot be written: {message}")]
    Full {
        /// The address, without its password.
        url: String,
        /// The message of the client library.
        message: String,
    },
    /// The user of the database lacks rights that this program needs.
    #[error("the database {url} does not let its user do this: {message}")]
    Forbidden {
        /// The address, without its password.
        url: String,
        /// The message of the server.
        message: String,
    },
    /// The file of a SQLite store was removed or replaced while this process had it open.
    #[error("the store {url} was {happened} while this process had it open")]
    Moved {
        /// The address.
        url: String,
        /// What happened to the file.
        happened: &'static str,
    },
    /// Other processes held the locks for too long.
    #[error("the database is busy: {0}")]
    Busy(String),
    /// The row does not exist.
    #[error("there is no {0}")]
    NotFound(String),
    /// A task was not queued, so none of its batch was.
    #[error("{refusal}")]
    NotQueued {
        /// Its index in the batch, from 0.
        index: usize,
        /// The reason.
        refusal: QueueRefusal,
    },
    /// A task was not imported, so none was.
    #[error("{problem}")]
    NotImported {
        /// Its index in the import, from 0.
        index: usize,
        /// The reason.
        problem: String,
    },
    /// The input could not be read a second time.
    #[error("cannot read the input again: {0}")]
    NotReadAgain(String),
    /// A migration failed.
    #[error("the migration failed: {0}")]
    Migration(String),
    /// There are no random numbers, which distinguish the writes of this process from those of others.
    #[error("cannot get random numbers: {0}")]
    NoRandomness(String),
    /// Any other error of the database.
    #[error("database error: {0}")]
    Database(#[from] DieselError),
}

impl StoreError {
    /// Returns true if the database refused values, which says nothing about other rows or the connection.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Database(error) if is_refusal(error))
    }
}

/// What MariaDB says of a CHECK (4025): Diesel has no kind for it.
const MARIADB_CHECK: &str = "` failed for `";

/// Returns true if the tables refused values.
fn is_refusal(error: &DieselError) -> bool {
    use DatabaseErrorKind::{CheckViolation, ForeignKeyViolation, NotNullViolation, UniqueViolation, Unknown};
    match error {
        DieselError::DatabaseError(CheckViolation | ForeignKeyViolation | NotNullViolation | UniqueViolation, _) => {
            true
        }
        DieselError::DatabaseError(Unknown, said) => said.message().contains(MARIADB_CHECK),
        _ => false,
    }
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectFailure {
    /// The server has no connection left, for any user or for this user.
    TooMany,
    /// The server is starting or stopping, or it is a cluster node that is not ready.
    NotReady,
    /// The server refused or reset the connection: it is not running, or it is restarting.
    Refused,
    /// Any other reason.
    Other,
}

/// How to handle an error of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It would fail again: a constraint, a value that cannot be read.
    Never,
    /// Deadlock, lock wait, busy: the whole closure may be repeated.
    Yes,
    /// The engine does not report the cause: perhaps a lock wait, perhaps a permanent error.
    FewTimes,
    /// The connection is lost: connect again, then repeat the closure.
    AfterReconnect,
    /// The server is read-only: connect again once another server has taken over, then repeat.
    AfterFailover,
    /// Its disk is full: callers that wait for space may repeat once there is some.
    WhenRoom,
}

/// Classifies the errors that Diesel maps on every engine; engines refine this for errors that Diesel calls unknown.
pub(super) fn classify_portably(error: &DieselError) -> Option<Repeat> {
    use DatabaseErrorKind as Kind;
    match error {
        _ if is_refusal(error) => Some(Repeat::Never),
        DieselError::DatabaseError(kind, _) => match kind {
            Kind::SerializationFailure => Some(Repeat::Yes),
            Kind::ClosedConnection | Kind::UnableToSendCommand => Some(Repeat::AfterReconnect),
            Kind::ReadOnlyTransaction => Some(Repeat::AfterFailover),
            _ => None,
        },
        DieselError::BrokenTransactionManager | DieselError::RollbackErrorOnCommit { .. } => {
            Some(Repeat::AfterReconnect)
        }
        _ => Some(Repeat::Never),
    }
}
