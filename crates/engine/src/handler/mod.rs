//! What runs a task: a program for each run (`command`) or one that is kept running (`coprocess`), the built-in class `exec`, or a Rust type of a program built on this
//! library.
//!
//! Knows how to run one attempt and nothing of the store, of claims or of retries: what happens is told to a
//! [`Reporter`], and the engine decides what it means.

pub mod active_run;
pub mod cancel_token;
pub mod command;
pub mod coprocess;
pub mod events;
pub mod exec;
pub mod inbox;
pub mod overrun;
pub mod registry;

use taskqueue_domain::run::message::Message;
pub use taskqueue_domain::run::stop_reason::StopReason;
use taskqueue_domain::task::meta::Meta;
use taskqueue_domain::task::task_class::TaskClass;

pub use active_run::{ActiveRun, HandlerError, run_rust_handler};
pub use cancel_token::CancelToken;
pub use inbox::Inbox;
pub use overrun::OverrunAction;

/// What a handler is told about the run it works for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunContext {
    /// The task; the same for all its attempts, and so a key for doing things once.
    pub task_id: i64,
    /// The run; grows with every attempt.
    pub run_id: i64,
    /// 1 for the first attempt.
    pub attempt: i32,
    /// How many failed attempts may be retried.
    pub max_retries: i32,
    /// The task class.
    pub class: TaskClass,
    /// The stored JSON, unchanged.
    pub data: String,
    /// The fence of the run: whoever writes on its behalf shows it.
    pub token: String,
    /// When it was to be processed: RFC 3339, UTC.
    pub planned_on: String,
    /// Seconds since the start or the last report after which it is ended; the one timeout that counts, whoever set it.
    pub timeout_secs: i64,
    /// When the timeout comes if nothing is reported: RFC 3339, UTC.
    pub deadline: String,
}

/// Takes what a handler says while it works.
pub trait Reporter {
    /// Progress, 0 to 100 percent.
    fn progress(&mut self, percent: i32, message: Option<&str>);
    /// The results so far, valid JSON; later ones replace earlier ones.
    fn results(&mut self, json: &str);
    /// A sign of life without news. Like the others it restarts the timeout.
    fn heartbeat(&mut self) {}
    /// What is added to the metadata of the task when the attempt ends.
    fn meta(&mut self, _meta: Meta) {}
    /// For anyone who follows.
    fn message(&mut self, _message: Message) {}
    /// Says when the run is cancelled.
    fn cancel_token(&self) -> CancelToken {
        CancelToken::default()
    }
    /// Returns the messages that are sent to the run from outside. From the first call on they are delivered.
    fn inbox(&mut self) -> Inbox {
        Inbox::closed()
    }
    /// Why the handler is to end; `None` while it may go on.
    fn stop_reason(&self) -> Option<StopReason> {
        self.cancel_token().is_cancelled().then_some(StopReason::Cancel)
    }
}

/// A task class that is handled by Rust code inside the runner.
pub trait TaskHandler: Send + Sync {
    /// Works for one run. `Ok` is a success; a panic is caught and counts as an error with code `panic`. There is no
    /// way to end it from outside: it should return soon once [`ActiveRun::stop_reason`] gives a reason. What happens if it
    /// does not is an [`OverrunAction`].
    ///
    /// # Errors
    /// Whatever made it fail; see [`HandlerError`] for what is tried again.
    fn process_task_queue_run(&self, run: &mut ActiveRun<'_>) -> Result<(), HandlerError>;
}
