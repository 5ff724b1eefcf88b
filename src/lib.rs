//! A durable task queue for the command line, cron and any language, on SQLite, PostgreSQL, MySQL and MariaDB.
//!
//! A task (what others call a job) is a row of TaskQueue, every attempt a row of TaskQueueRuns, every process that works a
//! row of TaskQueueRunners. The architecture, in the one direction in which dependencies point:
//!
//! ```text
//!   domain  <-  store  <-  engine  <-  cli  <-  main
//!                            |
//!                            +-->  handler  -->  os
//!   config: read once, passed down as plain values
//! ```
//!
//! - [`domain`]: what tasks and runs are and every rule about them; pure.
//! - [`store`]: the database, the only folder that knows Diesel; guards every change of a status.
//! - [`engine`]: the use cases, one file a verb; decides.
//! - [`os`]: what the kernel answers: identities, child processes, signals.
//! - [`handler`]: what runs a task: a program, or a Rust type.
//! - [`config`]: which classes there are.
//! - `cli`: the command line; the only place that prints.
//!
//! A program with task classes of its own gets the whole command line from [`App`]:
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
pub mod config;
pub mod domain;
pub mod engine;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod handler;
pub mod os;
pub mod store;

pub use crate::cli::App;
pub use crate::handler::{ActiveRun, CancelToken, HandlerError, TaskHandler};
