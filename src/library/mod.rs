//! The queue inside a program: queueing, also in transactions of its own, looking tasks up, and waiting for their ends. Uses
//! the engine as the command line does, and adds nothing to what that decides.

mod error;
mod new_task;
mod task_queue;
mod transaction;

pub use self::error::Error;
pub use self::new_task::NewTask;
pub use self::task_queue::{Ended, TaskQueue};
pub use self::transaction::queue_in;
