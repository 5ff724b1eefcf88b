//! The errors that a program can distinguish.

use taskqueue_domain::task::records::{Run, Task};
use taskqueue_engine::{DatabaseError, EngineError, StoreError};

/// Why a call failed; nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input is invalid.
    #[error("{0}")]
    Input(String),
    /// Another task has the key, and this one was to be refused then.
    #[error("{0}")]
    KeyTaken(String),
    /// There is no such task or run.
    #[error("{0}")]
    NotFound(String),
    /// The state of the task or the run does not allow it, such as cancelling a finished task or retrying one that has not
    /// failed.
    #[error("{0}")]
    Refused(String),
    /// The task has changed since it was read, and the edit requires that it has not. This is the current task.
    #[error("task {} has been changed since; it was not edited", .0.id)]
    Stale(Box<Task>),
    /// The claimant does not hold the run, or no longer holds it: its deadline passed and another process has the task, an
    /// operator took it back, or it has ended.
    #[error("run {} is not yours: {why}", run.id)]
    NotHeld {
        /// The current run.
        run: Box<Run>,
        /// Why, as text.
        why: String,
    },
    /// No attempt is in progress that could receive the message.
    #[error("{0}")]
    NotInProgress(String),
    /// A value has no JSON form.
    #[error("the data cannot be written as JSON: {0}")]
    Json(#[source] serde_json::Error),
    /// The database is unreachable, busy or full: a retry may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// The database refused a statement, inside a transaction of the caller or of this library.
    #[error("database error: {0}")]
    Database(#[from] DatabaseError),
    /// Any other error.
    #[error("{0}")]
    Failed(String),
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Input(message) => Self::Input(message),
            EngineError::KeyTaken(message) => Self::KeyTaken(message),
            EngineError::Refused(message) => Self::Refused(message),
            EngineError::NotHeld { run, why } => Self::NotHeld { run, why },
            EngineError::NotTakenBack { run, why } => {
                Self::Refused(format!("run {} cannot be taken back: {why}", run.id))
            }
            error @ EngineError::NotInProgress { .. } => Self::NotInProgress(error.to_string()),
            EngineError::Store(StoreError::Database(error)) => Self::Database(error),
            EngineError::Store(
                error @ (StoreError::Unreachable { .. } | StoreError::Busy(_) | StoreError::Full { .. }),
            ) => Self::Unavailable(error.to_string()),
            EngineError::Store(StoreError::BadAddress(message)) => Self::Input(message),
            EngineError::Store(error @ StoreError::NotFound(_)) => Self::NotFound(error.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}
