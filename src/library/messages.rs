//! Sending messages to the handlers of tasks.

use serde::Serialize;

use super::error::Error;
use super::task_queue::TaskQueue;
use taskqueue_domain::run::message::Message;
use taskqueue_domain::task::choosing::selection::ClassFilter;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_engine::change::messages::{SentMessage, send_to_class, send_to_task};

impl TaskQueue {
    /// Sends a message to the current attempt of a task. Its handler receives it from
    /// [`ActiveRun::messages`](crate::ActiveRun::messages); a coprocess as described in `docs/coprocess.md`.
    ///
    /// # Errors
    /// Returns [`Error::NotInProgress`], [`Error::NotFound`], [`Error::Json`], [`Error::Input`] if the name or the data is
    /// invalid, or an error of the database.
    pub fn message<T: Serialize + ?Sized>(&self, task: TaskId, name: &str, data: &T) -> Result<SentMessage, Error> {
        let message = message_of(name, data)?;
        self.with(|ctx| Ok(send_to_task(ctx, task, &message, false)?))
    }

    /// Like [`TaskQueue::message`], and also delivers the message to all later attempts. No attempt need be in progress, but
    /// one must be possible.
    ///
    /// # Errors
    /// Returns the same errors as [`TaskQueue::message`].
    pub fn message_kept<T: Serialize + ?Sized>(
        &self,
        task: TaskId,
        name: &str,
        data: &T,
    ) -> Result<SentMessage, Error> {
        let message = message_of(name, data)?;
        self.with(|ctx| Ok(send_to_task(ctx, task, &message, true)?))
    }

    /// Sends a message to all runs in progress of a class, or of the classes that match a pattern with `*` and `?`. Returns one
    /// result for each.
    ///
    /// # Errors
    /// Returns the same errors as [`TaskQueue::message`]; without a run in progress the list is empty instead.
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
