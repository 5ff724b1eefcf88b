//! A durable task queue for the command line, cron and any language, on SQLite, PostgreSQL, MySQL and MariaDB.
//!
//! A task (what others call a job) is a row of TaskQueue, each attempt is a row of TaskQueueRuns, and each process that
//! executes runs is a row of TaskQueueRunners.
//!
//! Everything on this page is public and follows semantic versioning. The crates behind it do not; `docs/architecture.md`
//! describes them.
//!
//! With a [`TaskQueue`] a program queues tasks, reads them, waits until they finish, changes them and claims them, as the
//! command line does. [`queue_in`] queues a task in a transaction of the program. `docs/library.md` has more.
//!
//! ```
//! use taskqueue::{NewTask, TaskQueue};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let address = directory.path().join("tasks.db").display().to_string();
//! let queue = TaskQueue::connect(&address)?;
//! queue.queue(NewTask::new("mail.send").data(&"ann@example.org")?)?;
//! # Ok(())
//! # }
//! ```
//!
//! A [`Worker`] executes tasks inside a program. A program with its own task classes gets the whole command line from `App` of
//! the crate `taskqueue-cli`:
//!
//! ```no_run
//! use taskqueue::{ActiveRun, HandlerError, TaskHandler};
//! use taskqueue_cli::App;
//!
//! struct Greet;
//!
//! impl TaskHandler for Greet {
//!     fn process_task_queue_run(&self, run: &mut ActiveRun<'_>) -> Result<(), HandlerError> {
//!         let name: String = run.data()?;
//!         run.set_results(&format!("Hello, {name}"))
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     App::new().class("greet", Greet).run()
//! }
//! ```

mod library;

/// Includes the library page, so that its examples are compiled.
#[cfg(doctest)]
#[doc = include_str!("../docs/library.md")]
mod library_page {}

/// The version of Diesel whose connections [`queue_in`] takes.
pub use diesel;

pub use crate::library::{
    Changes, Claim, ClaimedRun, Edit, Ended, EndedRun, Error, EventsOf, HeldRun, Listener, NewTask, Retry, Selection,
    TaskQueue, WorkReport, Worker, WorkerEvent, queue_in, typed,
};
#[doc(inline)]
pub use taskqueue_domain::limits::pause::{Pause, PauseMode, PauseScope};
#[doc(inline)]
pub use taskqueue_domain::run::attempt_outcome::AttemptOutcome;
#[doc(inline)]
pub use taskqueue_domain::run::message::Message;
#[doc(inline)]
pub use taskqueue_domain::run::status::{RunStatus, ScheduleStatus, Stored, TaskStatus};
#[doc(inline)]
pub use taskqueue_domain::task::ids::{RunId, RunnerId, TaskId};
#[doc(inline)]
pub use taskqueue_domain::task::records::{Run, Runner, Task, TaskSchedule};
#[doc(inline)]
pub use taskqueue_domain::task::unique::{Arrival, OnConflict, QueuedTask};
#[doc(inline)]
pub use taskqueue_engine::StopHandle;
#[doc(inline)]
pub use taskqueue_engine::change::messages::SentMessage;
#[doc(inline)]
pub use taskqueue_engine::claiming::claimants::{Renewed, Resolved};
#[doc(inline)]
pub use taskqueue_engine::claiming::take_back::TakenBack;
#[doc(inline)]
pub use taskqueue_engine::handler::{
    ActiveRun, CancelToken, HandlerError, Inbox, OverrunAction, StopReason, TaskHandler,
};
#[doc(inline)]
pub use taskqueue_engine::inspect::events::{Event, EventFilter};
#[doc(inline)]
pub use taskqueue_engine::queueing::queue_in::CallersConnection;
