//! What a program that queues and waits has to tell apart.

use taskqueue_domain::task::records::{Run, Task};
use taskqueue_engine::{DatabaseError, EngineError, StoreError};

/// Something was not done; nothing of it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What was given cannot be used, as it says.
    #[error("{0}")]
    Input(String),
    /// Another task has the key, and this one was to fail then.
    #[error("{0}")]
    KeyTaken(String),
    /// There is no such task or run.
    #[error("{0}")]
    NotFound(String),
    /// What was asked for is not possible in the state of the task or the run: to cancel what has ended, to retry what has not
    /// failed.
    #[error("{0}")]
    Refused(String),
    /// The task has changed since it was read, and was to be edited only if not. This is the task as it is now.
    #[error("task {} has been changed since; nothing of it was edited", .0.id)]
    Stale(Box<Task>),
    /// The claimant does not have the run, or has it no longer: its deadline was over and another one has the task, an operator
    /// took it back, or it has ended.
    #[error("run {} is not yours: {why}", run.id)]
    NotHeld {
        /// The run as it is now.
        run: Box<Run>,
        /// Why, in words.
        why: String,
    },
    /// No attempt is in progress that could get the message.
    #[error("{0}")]
    NotInProgress(String),
    /// A value cannot be written as JSON.
    #[error("the data cannot be written as JSON: {0}")]
    Json(#[source] serde_json::Error),
    /// The database is away, busy or full: the same may succeed later.
    #[error("{0}")]
    Unavailable(String),
    /// The database refused something, inside a transaction of the caller's or of ours.
    #[error("the database says: {0}")]
    Database(#[from] DatabaseError),
    /// Anything else.
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
