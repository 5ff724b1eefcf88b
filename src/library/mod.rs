//! The queue inside a program: queueing, also in the program's own transactions; reading, waiting, changing and claiming; and
//! executing tasks. It uses the engine as the command line does, and adds no rules.

pub(crate) mod changing;
pub(crate) mod claiming;
mod error;
mod events;
mod messages;
mod new_task;
mod selection;
mod task_queue;
mod transaction;
mod typed;
pub(crate) mod working;

pub use self::error::Error;
pub use self::new_task::NewTask;
pub use self::selection::Selection;
pub use self::task_queue::{Ended, TaskQueue};
pub use self::transaction::queue_in;
pub use self::typed::typed;
pub use crate::library::changing::changes::Changes;
pub use crate::library::changing::edit::Edit;
pub use crate::library::changing::retry::Retry;
pub use crate::library::claiming::claim::Claim;
pub use crate::library::claiming::claimed_run::{ClaimedRun, HeldRun};
pub use crate::library::working::listener::{EventsOf, Listener};
pub use crate::library::working::worker::{WorkReport, Worker};
pub use crate::library::working::worker_event::{EndedRun, WorkerEvent};
