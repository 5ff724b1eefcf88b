//! Messages to the handlers of tasks.

use serde::Serialize;

use super::error::Error;
use super::task_queue::TaskQueue;
use taskqueue_domain::run::message::Message;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::selection::ClassFilter;
use taskqueue_engine::change::messages::{SentMessage, send_to_class, send_to_task};

impl TaskQueue {
    /// Sends a message to the attempt at this task that is in progress. Its handler takes it from
    /// [`ActiveRun::messages`](crate::ActiveRun::messages); a coprocess as `docs/coprocess.md` says.
    ///
    /// # Errors
    /// [`Error::NotInProgress`], [`Error::NotFound`], [`Error::Json`], [`Error::Input`] for a name or data that no message can
    /// have, or the database's.
    pub fn message<T: Serialize + ?Sized>(&self, task: TaskId, name: &str, data: &T) -> Result<SentMessage, Error> {
        let message = message_of(name, data)?;
        self.with(|ctx| Ok(send_to_task(ctx, task, &message, false)?))
    }

    /// The same for all later attempts at the task, too. None need be in progress, but one must be possible.
    ///
    /// # Errors
    /// As of [`TaskQueue::message`].
    pub fn message_kept<T: Serialize + ?Sized>(
        &self,
        task: TaskId,
        name: &str,
        data: &T,
    ) -> Result<SentMessage, Error> {
        let message = message_of(name, data)?;
        self.with(|ctx| Ok(send_to_task(ctx, task, &message, true)?))
    }

    /// Sends a message to all runs in progress of this class, or of the classes that a pattern with `*` and `?` matches.
    /// Returns one answer for each.
    ///
    /// # Errors
    /// As of [`TaskQueue::message`], but where no run is in progress the answer is empty.
    pub fn message_class<T: Serialize + ?Sized>(
        &self,
        class: &str,
        name: &str,
        data: &T,
    ) -> Result<Vec<SentMessage>, Error> {
        let message = message_of(name, data)?;
        self.with(|ctx| Ok(send_to_class(ctx, &ClassFilter::new(class), &message)?))
    }
}

fn message_of<T: Serialize + ?Sized>(name: &str, data: &T) -> Result<Message, Error> {
    let data = serde_json::to_string(data).map_err(Error::Json)?;
    Ok(Message { name: name.to_owned(), data })
}
