//! The errors of use cases.

use std::path::PathBuf;

use taskqueue_domain::limits::limit::Obstacle;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Run;
use taskqueue_store::StoreError;

/// The result of a use case.
pub type EngineResult<T> = Result<T, EngineError>;

/// Why a use case failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The input is wrong; nothing was changed.
    #[error("{0}")]
    Input(String),
    /// The current state does not allow it; nothing was changed.
    #[error("{0}")]
    Refused(String),
    /// The caller may not do this; nothing was changed.
    #[error("{0}")]
    Forbidden(String),
    /// This host has no class of this name.
    #[error("the task class \"{class}\" is not known here")]
    UnknownClass {
        /// The name.
        class: String,
        /// The nearest known names.
        nearest: Vec<String>,
    },
    /// The class `exec` is off for this store.
    #[error("the class \"exec\" is off for this database, because anyone who can insert a row could run any program")]
    ExecIsOff,
    /// An export contains a task of the class `exec`, and the caller did not allow that.
    #[error("line {line}: task {id} is of the class exec, whose data names the program to run")]
    ImportsExec {
        /// The line.
        line: usize,
        /// The task.
        id: i64,
    },
    /// The same export was imported before.
    #[error("this export was imported already, on {} by {by}", .on.format("%Y-%m-%dT%H:%M:%SZ"))]
    ImportedBefore {
        /// When.
        on: chrono::DateTime<chrono::Utc>,
        /// By whom.
        by: String,
    },
    /// The key of a unique task is taken; nothing was queued.
    #[error("{0}")]
    KeyTaken(String),
    /// A requested run is not waiting: another process was faster.
    #[error("run {run_id} cannot be processed: its status is {status}")]
    NotWaiting {
        /// The run.
        run_id: i64,
        /// Its status.
        status: String,
    },
    /// A requested run has a class that this host does not execute now.
    #[error("run {run_id} cannot be processed: its class \"{class}\" has no handler here, or is held")]
    NotRunnable {
        /// The run.
        run_id: i64,
        /// Its class.
        class: String,
    },
    /// A message without `keep` was sent to a task that has no attempt in progress.
    #[error("task {task_id} has the status {status}: no attempt is in progress that could receive the message")]
    NotInProgress {
        /// The task.
        task_id: TaskId,
        /// Its status.
        status: String,
        /// Whether there will be no further attempt.
        is_settled: bool,
    },
    /// A claimant named a run that it does not hold, or no longer holds.
    #[error("run {} is not yours: {why}", run.id)]
    NotHeld {
        /// The current row of the run.
        run: Box<Run>,
        /// Why, as text.
        why: String,
    },
    /// An operator tried to release or fail a run that is not in progress, or that a runner holds.
    #[error("run {} cannot be released with --force: {why}", run.id)]
    NotTakenBack {
        /// The current row of the run.
        run: Box<Run>,
        /// Why, as text.
        why: String,
    },
    /// A requested run may not be claimed now: its class is paused, or a limit is reached.
    #[error("run {run_id} cannot be processed now: {obstacle}")]
    Obstructed {
        /// The run.
        run_id: i64,
        /// What blocks it.
        obstacle: Obstacle,
        /// For a limit key: the first tasks that hold its slots.
        holders: Vec<TaskId>,
    },
    /// The lease of a run could not be renewed in time, and nothing was recorded for it. Its program was killed; a Rust handler
    /// that did not return was left behind.
    #[error("run {run_id} was given up: its lease could not be renewed in time")]
    LeaseOver {
        /// The run.
        run_id: i64,
        /// Its task.
        task_id: i64,
        /// The status of its row afterwards; `None` if the database could not be read.
        found: Option<String>,
    },
    /// The lease of this runner could not be renewed in time, or another process has taken its slots.
    #[error("this runner has lost its slots: its lease could not be renewed in time")]
    RunnerOver,
    /// Rust handlers did not return, and so many threads were left behind that this worker may claim nothing more.
    #[error(
        "this worker has ended: {threads} handlers did not return when they were asked to stop, and occupy its threads"
    )]
    TooManyLeftBehind {
        /// Threads that were left behind and have not ended.
        threads: usize,
    },
    /// A run has ended, but the end could not be recorded in the database.
    #[error("{0}")]
    NotRecorded(Box<NotRecorded>),
    /// A system call failed.
    #[error("{what}: {source}")]
    Os {
        /// What was attempted.
        what: &'static str,
        /// The error of the system call.
        source: std::io::Error,
    },
    /// The database returned an error.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl EngineError {
    /// Returns true if the database was unreachable for so long that another process may have taken what this one held.
    pub(super) fn is_loss_of_database(&self) -> bool {
        match self {
            Self::LeaseOver { .. } | Self::RunnerOver | Self::Store(StoreError::Unreachable { .. }) => true,
            Self::NotRecorded(ended) => matches!(ended.source, StoreError::Unreachable { .. }),
            _ => false,
        }
    }
}

/// The end of a run that could not be recorded.
#[derive(Debug, thiserror::Error)]
#[error("run {run_id} of task {task_id} has ended ({ended}), but that could not be recorded: {source}")]
pub struct NotRecorded {
    /// The run.
    pub run_id: i64,
    /// Its task.
    pub task_id: i64,
    /// How it ended, as text.
    pub ended: String,
    /// The spool directory in which it is kept, or why it could not be kept.
    pub kept: Result<PathBuf, String>,
    /// The error of the database.
    pub source: StoreError,
}
