//! A durable task queue for the command line, cron and any language, on SQLite, PostgreSQL, MySQL and MariaDB.
//!
//! A task (what others call a job) is a row of TaskQueue, every attempt a row of TaskQueueRuns, every process that works a
//! row of TaskQueueRunners. The architecture, in the one direction in which dependencies point:
//!
//! ```text
//!   domain  <-  store  <-  engine  <-  cli  <-  main
//!                            |
//!                            +-->  handler  -->  os
//!   library uses the engine as cli does; config: read once, passed down as plain values
//! ```
//!
//! - `domain`: what tasks and runs are and every rule about them; pure.
//! - `store`: the database, the only folder that knows Diesel; guards every change of a status.
//! - `engine`: the use cases, one file a verb; decides.
//! - `os`: what the kernel answers: identities, child processes, signals.
//! - `handler`: what runs a task: a program, or a Rust type.
//! - `config`: which classes there are.
//! - `cli`: the command line; the only place that prints.
//! - `library`: the queue inside a program.
//!
//! What this page lists is public and follows semantic versioning. The modules are not: the tests of this repository reach
//! into them, and nothing else should.
//!
//! A program queues by [`TaskQueue`], looks tasks up, waits for their ends, changes and claims them, as the command line does;
//! [`queue_in`] queues in a transaction of the program's own. `docs/library.md` tells more.
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
//! [`Worker`] works on the tasks inside a program. A program with task classes of its own gets the whole command line from
//! [`App`]:
//!
//! ```no_run
//! use taskqueue::{ActiveRun, App, HandlerError, TaskHandler};
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

#[macro_use]
mod fault_point;

mod cli;
#[doc(hidden)]
pub mod config;
#[doc(hidden)]
pub mod domain;
#[doc(hidden)]
pub mod engine;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
#[doc(hidden)]
pub mod handler;
mod library;
#[doc(hidden)]
pub mod os;
#[doc(hidden)]
pub mod store;

/// The page of the library, so that its examples are compiled.
#[cfg(doctest)]
#[doc = include_str!("../docs/library.md")]
mod library_page {}

/// Diesel as [`queue_in`] takes its connections.
pub use diesel;

pub use crate::cli::App;
pub use crate::domain::attempt_outcome::AttemptOutcome;
pub use crate::domain::ids::{RunId, RunnerId, TaskId};
pub use crate::domain::message::Message;
pub use crate::domain::pause::{Pause, PauseMode, PauseScope};
pub use crate::domain::records::{Run, Runner, Task, TaskSchedule};
pub use crate::domain::status::{RunStatus, ScheduleStatus, Stored, TaskStatus};
pub use crate::domain::unique::{Arrival, OnConflict, QueuedTask};
pub use crate::engine::StopHandle;
pub use crate::engine::claimants::{Renewed, Resolved};
pub use crate::engine::events::{Event, EventFilter};
pub use crate::engine::messages::SentMessage;
pub use crate::engine::queue_in::CallersConnection;
pub use crate::engine::take_back::TakenBack;
pub use crate::handler::{ActiveRun, CancelToken, HandlerError, Inbox, OverrunAction, StopReason, TaskHandler};
pub use crate::library::{
    Changes, Claim, ClaimedRun, Edit, Ended, EndedRun, Error, EventsOf, HeldRun, Listener, NewTask, Retry, Selection,
    TaskQueue, WorkReport, Worker, WorkerEvent, queue_in, typed,
};
