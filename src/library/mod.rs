//! The queue inside a program: queueing, also in transactions of its own, looking tasks up, waiting for their ends, and working
//! on them. Uses the engine as the command line does, and adds nothing to what that decides.

mod error;
mod listener;
mod messages;
mod new_task;
mod task_queue;
mod transaction;
mod typed;
mod worker;
mod worker_news;

pub use self::error::Error;
pub use self::listener::{EventsOf, Listener};
pub use self::new_task::NewTask;
pub use self::task_queue::{Ended, TaskQueue};
pub use self::transaction::queue_in;
pub use self::typed::typed;
pub use self::worker::{WorkReport, Worker};
pub use self::worker_news::{EndedRun, WorkerNews};
