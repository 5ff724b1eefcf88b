//! What can go wrong between this program and its database.

use diesel::result::DatabaseErrorKind;
pub use diesel::result::Error as DatabaseError;
use diesel::result::Error as DieselError;

use taskqueue_domain::settings::BadSetting;
use taskqueue_domain::task::new_task::QueueRefusal;

/// Result of the store.
pub type StoreResult<T> = Result<T, StoreError>;

/// An error of the store. No message of it carries a password.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The address is none that this program can use.
    #[error("{0}")]
    BadAddress(String),
    /// The database cannot be reached, or not any more.
    #[error("cannot reach the database {url}: {message}")]
    Unreachable {
        /// The address, without its password.
        url: String,
        /// What the client library says, without the password.
        message: String,
        /// Why, as far as it is known.
        failure: ConnectFailure,
    },
    /// The database has no tables of ours, or older ones than this program needs.
    #[error("the database {url} has {pending} {} of taskqueue pending", if *pending == 1 { "migration" } else { "migrations" })]
    NotMigrated {
        /// The address, without its password.
        url: String,
        /// How many.
        pending: usize,
    },
    /// The file is a database of something else.
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
        /// The newest migration that this program does not know.
        version: String,
    },
    /// The tables are those of a program before the first release, which no migration changes.
    #[error(
        "the database {url} has the tables of an older, unreleased taskqueue ({version}); this one cannot use them"
    )]
    OlderSchema {
        /// The address, without its password.
        url: String,
        /// The migration that this program does not have any more.
        version: String,
    },
    /// The file or the server does not accept writes.
    #[error("the database {url} cannot be written: {message}")]
    ReadOnly {
        /// The address, without its password.
        url: String,
        /// What the client library says.
        message: String,
    },
    /// There is no room on its disk.
    #[error("the database {url} cannot be written: {message}")]
    Full {
        /// The address, without its password.
        url: String,
        /// What the client library says.
        message: String,
    },
    /// The user of the database may not do what this program has to do.
    #[error("the database {url} does not let its user do this: {message}")]
    Forbidden {
        /// The address, without its password.
        url: String,
        /// What the server says.
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
    /// Others held the locks for too long.
    #[error("the database is busy: {0}")]
    Busy(String),
    /// There is no such row.
    #[error("there is no {0}")]
    NotFound(String),
    /// A task was not queued, and with it none of its batch.
    #[error("{refusal}")]
    NotQueued {
        /// Its place in the batch, from 0.
        index: usize,
        /// Why.
        refusal: QueueRefusal,
    },
    /// A task was not imported, and none with it.
    #[error("{problem}")]
    NotImported {
        /// Its place among those that were to be, from 0.
        index: usize,
        /// Why.
        problem: String,
    },
    /// What was to be inserted could not be read a second time.
    #[error("what is to be inserted cannot be read again: {0}")]
    NotReadAgain(String),
    /// A setting in the store has a value outside its range.
    #[error(transparent)]
    Setting(#[from] BadSetting),
    /// A migration failed.
    #[error("the migration failed: {0}")]
    Migration(String),
    /// Without random numbers nothing can be told apart from what others write.
    #[error("no random numbers: {0}")]
    NoRandomness(String),
    /// Anything else that the database refused.
    #[error("the database says: {0}")]
    Database(#[from] DieselError),
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectFailure {
    /// The server has no connection left, for anybody or for this user.
    TooMany,
    /// The server is starting or ending, or it is a node of a cluster that is not ready.
    NotReady,
    /// The server refused or reset the connection: it is not running, or it is restarting.
    Refused,
    /// Any other reason.
    Other,
}

/// How an error of a statement is to be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It would fail again: a constraint, a value that cannot be read.
    Never,
    /// Deadlock, lock wait, busy: the whole closure may be run again.
    Yes,
    /// The engine does not tell: perhaps a lock wait, perhaps something that will fail again.
    FewTimes,
    /// The connection is gone: connect again, then run the closure again.
    AfterReconnect,
    /// The server cannot be written: the same, once another one has taken its place.
    AfterFailover,
    /// Its disk is full: it can be run again once there is room, for whoever waits for that.
    WhenRoom,
}

/// What holds on every engine, by the kinds that Diesel maps; engines refine it for what Diesel calls unknown.
pub(super) fn classify_portably(error: &DieselError) -> Option<Repeat> {
    use DatabaseErrorKind as Kind;
    match error {
        DieselError::DatabaseError(kind, _) => match kind {
            Kind::UniqueViolation | Kind::ForeignKeyViolation | Kind::NotNullViolation | Kind::CheckViolation => {
                Some(Repeat::Never)
            }
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
