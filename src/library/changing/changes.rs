//! [`Changes`]: the result for each task of a call.

use crate::library::error::Error;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_engine::change::cancel::REQUESTED;
use taskqueue_engine::change::selected::TaskAnswer;

/// The result for each task of a selection. An empty selection is not an error: all lists are empty.
///
/// ```
/// # use taskqueue::{Error, NewTask, TaskQueue};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let queue = TaskQueue::connect(&directory.path().join("tasks.db").display().to_string())?;
/// # let id = queue.queue(NewTask::new("mail.send"))?.id;
/// // One task: what was refused is an error.
/// queue.cancel(id)?.all()?;
///
/// // Many tasks: some may be in another state by now.
/// let changes = queue.retry("class=mail.* status=exhausted".parse::<taskqueue::Selection>()?)?;
/// println!("{} tasks are retried", changes.changed.len());
/// for (id, error) in &changes.refused {
///     println!("task {id}: {error}");
/// }
///
/// assert!(matches!(queue.cancel(id)?.all(), Err(Error::Refused(_))), "it is cancelled already");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
#[non_exhaustive]
#[must_use = "a task may have been refused"]
pub struct Changes {
    /// The tasks that were changed.
    pub changed: Vec<TaskId>,
    /// The tasks in progress whose runners or claimants are asked to end them.
    pub requested: Vec<TaskId>,
    /// The tasks that were not changed, each with [`Error::Refused`], [`Error::Stale`] or [`Error::NotFound`].
    pub refused: Vec<(TaskId, Error)>,
}

impl Changes {
    /// Returns the tasks that were changed or are asked to end, if no task was refused.
    ///
    /// # Errors
    /// Returns the error of the first refused task; the tasks in `changed` stay changed.
    pub fn all(mut self) -> Result<Vec<TaskId>, Error> {
        if !self.refused.is_empty() {
            return Err(self.refused.swap_remove(0).1);
        }
        self.changed.append(&mut self.requested);
        Ok(self.changed)
    }

    /// Adds the result for one task.
    pub(crate) fn add(&mut self, answer: TaskAnswer) {
        let id = answer.id;
        match answer {
            TaskAnswer { result: Some(REQUESTED), .. } => self.requested.push(id),
            TaskAnswer { result: Some(_), .. } => self.changed.push(id),
            TaskAnswer { exists: false, message, .. } => self.refused.push((id, Error::NotFound(message))),
            TaskAnswer { current: Some(task), .. } => self.refused.push((id, Error::Stale(task))),
            TaskAnswer { message, .. } => self.refused.push((id, Error::Refused(message))),
        }
    }
}
