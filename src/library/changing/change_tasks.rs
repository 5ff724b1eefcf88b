//! Selecting, cancelling, retrying and editing tasks.

use crate::library::changing::changes::Changes;
use crate::library::changing::edit::Edit;
use crate::library::changing::retry::Retry;
use crate::library::error::Error;
use crate::library::selection::Selection;
use crate::library::task_queue::TaskQueue;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_engine::change::cancel::{cancel_tasks, cancellable, with_dependants};
use taskqueue_engine::change::edit::{edit_tasks, editable};
use taskqueue_engine::change::retry::{RetryOptions, retry_tasks, retryable};
use taskqueue_engine::change::selected::{OnAnswer, oldest};
use taskqueue_engine::upkeep::prune::prune_selected;
use taskqueue_engine::{Context, EngineResult};

impl TaskQueue {
    /// Returns the ids of the selected tasks. A selection that is only a list of ids returns these ids, whether the tasks exist
    /// or not.
    ///
    /// ```
    /// # use taskqueue::{NewTask, Selection, TaskQueue};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let queue = TaskQueue::connect(&directory.path().join("tasks.db").display().to_string())?;
    /// # let id = queue.queue(NewTask::new("mail.send"))?.id;
    /// assert_eq!(queue.select("class=mail.* status=waiting".parse::<Selection>()?)?, [id]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error of the database.
    pub fn select(&self, selection: impl Into<Selection>) -> Result<Vec<TaskId>, Error> {
        self.with(|ctx| selection.into().find(ctx, &[]))
    }

    /// Cancels tasks, as `taskqueue cancel` does. Waiting tasks are cancelled at once. For a task in progress, its runner or
    /// claimant is asked to end it ([`Changes::requested`]); a run that finishes before that stays finished.
    ///
    /// ```
    /// # use taskqueue::{NewTask, TaskQueue, TaskStatus};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let queue = TaskQueue::connect(&directory.path().join("tasks.db").display().to_string())?;
    /// # let id = queue.queue(NewTask::new("mail.send"))?.id;
    /// queue.because("the customer left").cancel(id)?.all()?;
    /// assert!(queue.task(id)?.status.is(TaskStatus::Cancelled));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Input`] if the reason is invalid, or an error of the database; earlier tasks stay cancelled.
    pub fn cancel(&self, selection: impl Into<Selection>) -> Result<Changes, Error> {
        let reason = self.reason();
        self.change(&selection.into(), &cancellable(false), |ctx, ids, hear| cancel_tasks(ctx, ids, reason, hear))
    }

    /// Cancels tasks and all tasks that wait for them, directly or indirectly.
    ///
    /// # Errors
    /// Returns the same errors as [`TaskQueue::cancel`].
    pub fn cancel_with_dependants(&self, selection: impl Into<Selection>) -> Result<Changes, Error> {
        let reason = self.reason();
        self.change(&selection.into(), &cancellable(true), |ctx, ids, hear| {
            let ids = with_dependants(ctx, ids.to_vec())?;
            cancel_tasks(ctx, &ids, reason, hear)
        })
    }

    /// Retries tasks, as `taskqueue retry` does. Failed, exhausted and quarantined tasks are due at once, with all their retries;
    /// tasks that succeeded, expired or were cancelled start again from the beginning. A selection without ids and without
    /// statuses selects only failed and timed-out tasks.
    ///
    /// ```
    /// # use taskqueue::{Error, NewTask, TaskQueue};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let queue = TaskQueue::connect(&directory.path().join("tasks.db").display().to_string())?;
    /// # let id = queue.queue(NewTask::new("mail.send"))?.id;
    /// assert!(matches!(queue.retry(id)?.all(), Err(Error::Refused(_))), "it still waits");
    /// queue.cancel(id)?.all()?;
    /// queue.retry(id)?.all()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error of the database; earlier tasks stay retried.
    pub fn retry(&self, selection: impl Into<Selection>) -> Result<Changes, Error> {
        self.retry_with(selection, &Retry::new())
    }

    /// Retries tasks with other data, only a sample of them, at a rate, or by force.
    ///
    /// # Errors
    /// Returns [`Error::Input`] if the data or the rate is invalid; then nothing is changed. Otherwise returns an error of the
    /// database, or those of [`TaskQueue::take_back`]; earlier tasks stay retried.
    pub fn retry_with(&self, selection: impl Into<Selection>, options: &Retry) -> Result<Changes, Error> {
        let (selection, rate) = (selection.into(), options.checked_rate()?);
        let (data, by_force) = (options.data.as_deref(), options.is_by_force);
        let statuses = retryable(by_force);
        let only = selection.statuses(&statuses);
        self.change(&selection, &statuses, |ctx, ids, hear| {
            let ids = oldest(ids.to_vec(), options.sample);
            retry_tasks(ctx, &ids, &RetryOptions { only: &only, data, rate, by_force }, hear)
        })
    }

    /// Changes the data, time, priority and other values of tasks, as `taskqueue edit` does. The change applies to the next
    /// attempt, not to one in progress.
    ///
    /// ```
    /// # use taskqueue::{Edit, Error, NewTask, TaskQueue};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let queue = TaskQueue::connect(&directory.path().join("tasks.db").display().to_string())?;
    /// # let id = queue.queue(NewTask::new("mail.send"))?.id;
    /// let seen = queue.task(id)?;
    /// let edit = Edit::new().data(&"bob@example.org")?.priority(5).if_updated_on(seen.updated_on);
    /// queue.edit(id, &edit)?.all()?;
    ///
    /// // The task has changed since it was read.
    /// match queue.edit(id, &edit)?.all() {
    ///     Err(Error::Stale(task)) => assert_eq!(task.data_as::<String>()?, "bob@example.org"),
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Input`] if the edit is invalid; then nothing is changed. Otherwise returns an error of the database;
    /// earlier tasks stay changed.
    pub fn edit(&self, selection: impl Into<Selection>, edit: &Edit) -> Result<Changes, Error> {
        self.change(&selection.into(), &editable(), |ctx, ids, hear| {
            let edit = edit.to_request(ctx)?;
            edit_tasks(ctx, ids, &edit, hear)
        })
    }

    /// Deletes finished tasks with their runs, however old they are, as `taskqueue prune SELECTION` does.
    ///
    /// ```
    /// # use taskqueue::{Error, NewTask, TaskQueue};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let queue = TaskQueue::connect(&directory.path().join("tasks.db").display().to_string())?;
    /// # let id = queue.queue(NewTask::new("mail.send"))?.id;
    /// assert!(matches!(queue.prune(id)?.all(), Err(Error::Refused(_))), "it still waits");
    /// queue.cancel(id)?.all()?;
    /// queue.prune(id)?.all()?;
    /// assert!(matches!(queue.task(id), Err(Error::NotFound(_))));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error of the database; earlier tasks stay deleted.
    pub fn prune(&self, selection: impl Into<Selection>) -> Result<Changes, Error> {
        let selection = selection.into();
        let words = selection.text();
        self.change(&selection, &[], |ctx, ids, hear| prune_selected(ctx, ids, &words, hear))
    }

    /// Finds the tasks and applies `act` to them.
    fn change(
        &self,
        selection: &Selection,
        statuses: &[TaskStatus],
        act: impl FnOnce(&mut Context, &[TaskId], OnAnswer<'_>) -> EngineResult<()>,
    ) -> Result<Changes, Error> {
        self.with(|ctx| {
            let ids = selection.find(ctx, statuses)?;
            let mut changes = Changes::default();
            act(ctx, &ids, &mut |answer| changes.add(answer))?;
            Ok(changes)
        })
    }
}
