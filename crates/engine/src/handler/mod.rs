//! Runs a task: with a program for each run (`command`), with a program that is kept running (`coprocess`), with the built-in
//! class `exec`, or with a Rust type.
//!
//! This module runs one attempt, independently of the store, claims and retries. It passes reports to a [`Reporter`], and the
//! engine decides what they mean.

pub mod active_run;
pub mod cancel_token;
pub mod command;
pub mod coprocess;
pub mod events;
pub mod exec;
pub mod handlers;
pub mod inbox;
pub mod overrun;
pub mod registry;

use taskqueue_domain::run::message::Message;
pub use taskqueue_domain::run::stop_reason::StopReason;
use taskqueue_domain::task::meta::Meta;
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_domain::task::trace::Trace;

pub use active_run::{ActiveRun, HandlerError, run_rust_handler};
pub use cancel_token::CancelToken;
pub use inbox::Inbox;
pub use overrun::OverrunAction;

/// The data that a handler gets about its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunContext {
    /// The id of the task; the same for all its attempts, so it can serve as an idempotency key.
    pub task_id: i64,
    /// The id of the run; grows with every attempt.
    pub run_id: i64,
    /// 1 for the first attempt.
    pub attempt: i32,
    /// The number of failed attempts after which the task is exhausted.
    pub max_retries: i32,
    /// The task class.
    pub class: TaskClass,
    /// The stored JSON, unchanged.
    pub data: String,
    /// The fencing token of the run: every write for the run must pass it.
    pub token: String,
    /// When the task was planned: RFC 3339, UTC.
    pub planned_on: String,
    /// The timeout in effect: seconds since the start or the last report after which the run is ended.
    pub timeout_secs: i64,
    /// When the timeout expires if nothing is reported: RFC 3339, UTC.
    pub deadline: String,
    /// The trace context and the correlation id of the task.
    pub trace: Trace,
}

/// Receives the reports of a handler.
pub trait Reporter {
    /// Progress, 0 to 100 percent.
    fn progress(&mut self, _percent: i32, _message: Option<&str>) {}
    /// The results so far, valid JSON; later ones replace earlier ones.
    fn results(&mut self, _json: &str) {}
    /// A heartbeat. Like the other reports, it restarts the timeout.
    fn heartbeat(&mut self) {}
    /// Values to add to the metadata of the task when the attempt ends.
    fn meta(&mut self, _meta: Meta) {}
    /// A message that anyone may follow.
    fn message(&mut self, _message: Message) {}
    /// Returns the token that signals that the run must end.
    fn cancel_token(&self) -> CancelToken {
        CancelToken::default()
    }
    /// Returns the inbox with the messages to the run. The first call starts the delivery.
    fn inbox(&mut self) -> Inbox {
        Inbox::closed()
    }
    /// Returns why the handler should end; `None` while it may continue.
    fn stop_reason(&self) -> Option<StopReason> {
        self.cancel_token().is_cancelled().then_some(StopReason::Cancel)
    }
}

/// A task class that is handled by Rust code inside the runner.
pub trait TaskHandler: Send + Sync {
    /// Processes one run. `Ok` is a success; a panic is caught and counts as an error with code `panic`. A thread cannot be
    /// ended from outside, so return soon once [`ActiveRun::stop_reason`] returns a reason. An [`OverrunAction`] sets what
    /// happens otherwise.
    ///
    /// # Errors
    /// Returns why it failed; see [`HandlerError`] for what is retried.
    fn process_task_queue_run(&self, run: &mut ActiveRun<'_>) -> Result<(), HandlerError>;
}
