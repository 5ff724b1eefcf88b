//! The queue inside a program: queueing, also in the program's own transactions; reading, waiting, changing and claiming; and
//! executing tasks. It uses the engine as the command line does, and adds no rules.

mod change_tasks;
mod changes;
mod claim;
mod claimed_run;
mod edit;
mod error;
mod events;
mod listener;
mod messages;
mod new_task;
mod pauses;
mod retry;
mod selection;
mod task_queue;
mod transaction;
mod typed;
mod worker;
mod worker_event;

pub use self::changes::Changes;
pub use self::claim::Claim;
pub use self::claimed_run::{ClaimedRun, HeldRun};
pub use self::edit::Edit;
pub use self::error::Error;
pub use self::listener::{EventsOf, Listener};
pub use self::new_task::NewTask;
pub use self::retry::Retry;
pub use self::selection::Selection;
pub use self::task_queue::{Ended, TaskQueue};
pub use self::transaction::queue_in;
pub use self::typed::typed;
pub use self::worker::{WorkReport, Worker};
pub use self::worker_event::{EndedRun, WorkerEvent};
