//! Why a use case could not be carried out.

use std::path::PathBuf;

use taskqueue_domain::run::limits::Obstacle;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Run;
use taskqueue_store::StoreError;

/// Result of a use case.
pub type EngineResult<T> = Result<T, EngineError>;

/// A use case could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The input is wrong; nothing was changed.
    #[error("{0}")]
    Input(String),
    /// What was asked for is not possible as things stand; nothing was changed.
    #[error("{0}")]
    Refused(String),
    /// No class of this name is known here.
    #[error("the task class \"{class}\" is not known here")]
    UnknownClass {
        /// The name.
        class: String,
        /// The nearest known names.
        nearest: Vec<String>,
    },
    /// The class `exec` is off for this store.
    #[error("the class \"exec\" is off for this database, because whoever can insert a row could run any program")]
    ExecIsOff,
    /// An export has a task of the class `exec`, and nobody allowed that.
    #[error("line {line}: task {id} is of the class exec, whose data names the program to run")]
    ImportsExec {
        /// The line.
        line: usize,
        /// The task.
        id: i64,
    },
    /// The key of a unique task is taken; nothing was queued.
    #[error("{0}")]
    KeyTaken(String),
    /// A run that was asked for is not waiting: somebody else was first.
    #[error("run {run_id} cannot be processed: it is {status}")]
    NotWaiting {
        /// The run.
        run_id: i64,
        /// The status that it has.
        status: String,
    },
    /// A run that was asked for is of a class that is not executed here now.
    #[error("run {run_id} cannot be processed: its class \"{class}\" has no handler here, or is held")]
    NotRunnable {
        /// The run.
        run_id: i64,
        /// Its class.
        class: String,
    },
    /// A message was sent to a task of which no attempt is in progress, and was not to be kept.
    #[error("task {task_id} is {status}: no attempt is in progress that could get the message")]
    NotInProgress {
        /// The task.
        task_id: TaskId,
        /// Its status.
        status: String,
        /// Whether no further attempt will come.
        is_settled: bool,
    },
    /// A claimant spoke of a run that is not its own, or not any more.
    #[error("run {} is not yours: {why}", run.id)]
    NotHeld {
        /// The run as it is.
        run: Box<Run>,
        /// Why, in words.
        why: String,
    },
    /// An operator wanted to take a run that is not in progress, or that a runner has.
    #[error("run {} cannot be released with --force: {why}", run.id)]
    NotTakenBack {
        /// The run as it is.
        run: Box<Run>,
        /// Why, in words.
        why: String,
    },
    /// A run that was asked for may not be claimed now: paused, or over a limit.
    #[error("run {run_id} cannot be processed now: {obstacle}")]
    Obstructed {
        /// The run.
        run_id: i64,
        /// What stands in its way.
        obstacle: Obstacle,
        /// Where that is a limit key: the first tasks that have its slots.
        holders: Vec<TaskId>,
    },
    /// The lease of a run could not be renewed in time, and nothing was written for it. Its program was killed; a handler in Rust
    /// that did not return was left behind.
    #[error("run {run_id} was given up: its lease could not be renewed in time")]
    LeaseOver {
        /// The run.
        run_id: i64,
        /// Its task.
        task_id: i64,
        /// The status in its row afterwards; `None` where the database could not be asked.
        found: Option<String>,
    },
    /// The lease of this runner could not be renewed in time, or somebody has taken its slots.
    #[error("this runner has lost its slots: its lease could not be renewed in time")]
    RunnerOver,
    /// Handlers in Rust did not end, and so many threads were left behind that this worker may claim nothing more.
    #[error("this worker has ended: {threads} handlers did not end when they were asked to, and hold its threads")]
    TooManyLeftBehind {
        /// Threads that were left behind and have not ended.
        threads: usize,
    },
    /// A run has ended, and the database could not be told.
    #[error("{0}")]
    NotRecorded(Box<NotRecorded>),
    /// The kernel refused something.
    #[error("{what}: {source}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// What the kernel says.
        source: std::io::Error,
    },
    /// The database refused something.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl EngineError {
    /// Whether the database could not be reached for so long that another process may have taken what this one held.
    pub(super) fn is_loss_of_database(&self) -> bool {
        match self {
            Self::LeaseOver { .. } | Self::RunnerOver | Self::Store(StoreError::Unreachable { .. }) => true,
            Self::NotRecorded(ended) => matches!(ended.source, StoreError::Unreachable { .. }),
            _ => false,
        }
    }
}

/// The end of a run of which the database could not be told.
#[derive(Debug, thiserror::Error)]
#[error("run {run_id} of task {task_id} has ended ({ended}), but that could not be recorded: {source}")]
pub struct NotRecorded {
    /// The run.
    pub run_id: i64,
    /// Its task.
    pub task_id: i64,
    /// How it ended, in words.
    pub ended: String,
    /// The directory of the local disk in which it waits for the database, or why it does not.
    pub kept: Result<PathBuf, String>,
    /// What the database refused.
    pub source: StoreError,
}
