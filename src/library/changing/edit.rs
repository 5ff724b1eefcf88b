//! [`Edit`]: changes to tasks.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::library::error::Error;
use crate::library::new_task::{keep_secs, later, whole_secs};
use taskqueue_domain::task::expiry::Expiry;
use taskqueue_domain::task::task_change::ChangeRequest;
use taskqueue_engine::change::edit;
use taskqueue_engine::{Context, EngineError, EngineResult};

/// A change to tasks, for [`TaskQueue::edit`](crate::TaskQueue::edit). Values that are not set stay unchanged.
///
/// ```
/// # fn main() -> Result<(), taskqueue::Error> {
/// use std::time::Duration;
/// use taskqueue::Edit;
///
/// let edit = Edit::new().data(&["ann@example.org"])?.delay(Duration::from_secs(60)).max_retries(3).default_timeout();
/// # let _ = edit;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Edit {
    change: ChangeRequest,
    delay: Option<Duration>,
    if_updated_on: Option<DateTime<Utc>>,
}

impl Edit {
    /// Creates an edit that changes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the data: any value that serde can write as JSON.
    ///
    /// # Errors
    /// Returns [`Error::Json`] if the value has no JSON form, such as a map whose keys are not strings.
    pub fn data(self, value: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
        Ok(self.json(serde_json::to_string(value).map_err(Error::Json)?))
    }

    /// Sets the data as JSON text, which is stored byte for byte.
    pub fn json(mut self, text: impl Into<String>) -> Self {
        self.change.data = Some(text.into());
        self
    }

    /// Sets the time before which the task is not processed.
    pub fn at(mut self, instant: impl Into<DateTime<Utc>>) -> Self {
        self.change.scheduled_on = Some(instant.into());
        self
    }

    /// Sets that time to this long from now, by the clock of the database.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Sets when the task expires: this long after its time, or after now if that has passed. Rounded up to whole seconds.
    pub fn expires(mut self, time: Duration) -> Self {
        self.change.expires = Some(Some(Expiry::After(whole_secs(time))));
        self
    }

    /// Sets the time from which the task does not start any more.
    pub fn expires_at(mut self, instant: impl Into<DateTime<Utc>>) -> Self {
        self.change.expires = Some(Some(Expiry::At(instant.into())));
        self
    }

    /// Removes that time: the task does not expire.
    pub fn never_expires(mut self) -> Self {
        self.change.expires = Some(None);
        self
    }

    /// Sets the number of failed attempts after which the task is exhausted.
    pub fn max_retries(mut self, count: u32) -> Self {
        self.change.max_retries = Some(count.into());
        self
    }

    /// Sets the timeout: how long an attempt may run without an end or a report. Rounded up to whole seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.change.timeout_secs = Some(Some(whole_secs(timeout)));
        self
    }

    /// Removes the timeout of the task, so that its class or the setting applies.
    pub fn default_timeout(mut self) -> Self {
        self.change.timeout_secs = Some(None);
        self
    }

    /// Sets the priority: -1000 to 1000, higher first.
    pub fn priority(mut self, priority: i32) -> Self {
        self.change.priority = Some(priority.into());
        self
    }

    /// Sets the delays before retries, as `edit --backoff` takes them.
    pub fn backoff(mut self, waits: impl Into<String>) -> Self {
        self.change.backoff = Some(Some(waits.into()));
        self
    }

    /// Removes the backoff of the task, so that its class or the settings apply.
    pub fn default_backoff(mut self) -> Self {
        self.change.backoff = Some(None);
        self
    }

    /// Sets how long the task is kept after it has finished, rounded up to whole seconds.
    pub fn keep(mut self, time: Duration) -> Self {
        self.change.keep_secs = Some(Some(keep_secs(time)));
        self
    }

    /// Keeps the task until it is deleted by a selection.
    pub fn keep_forever(mut self) -> Self {
        self.change.keep_secs = Some(Some(0));
        self
    }

    /// Removes its retention period, so that its class or the settings apply.
    pub fn default_keep(mut self) -> Self {
        self.change.keep_secs = Some(None);
        self
    }

    /// Sets how long the results of all its runs are kept.
    pub fn keep_results(mut self, time: Duration) -> Self {
        self.change.keep_results_secs = Some(Some(keep_secs(time)));
        self
    }

    /// Keeps the results of its runs as long as the task.
    pub fn keep_results_forever(mut self) -> Self {
        self.change.keep_results_secs = Some(Some(0));
        self
    }

    /// Removes that period, so that its class or the setting applies.
    pub fn default_keep_results(mut self) -> Self {
        self.change.keep_results_secs = Some(None);
        self
    }

    /// Sets a value of its metadata; `None` or `()` removes the name.
    ///
    /// # Errors
    /// Returns [`Error::Json`], or [`Error::Input`] if the name is empty or too long.
    pub fn meta(mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
        let json = serde_json::to_string(value).map_err(Error::Json)?;
        self.change.meta.set(name, &json).map_err(Error::Input)?;
        Ok(self)
    }

    /// Edits only if the task has not changed since it was read, with this `Task::updated_on`. Otherwise the task is refused
    /// with [`Error::Stale`].
    pub fn if_updated_on(mut self, version: DateTime<Utc>) -> Self {
        self.if_updated_on = Some(version);
        self
    }

    /// Returns the edit for the engine, with the delay counted from now.
    pub(crate) fn to_request(&self, ctx: &mut Context) -> EngineResult<edit::Edit> {
        let mut change = self.change.clone();
        if let Some(delay) = self.delay {
            change.scheduled_on = Some(later(ctx.now()?, delay).map_err(EngineError::Input)?);
        }
        if change == ChangeRequest::default() {
            return Err(EngineError::Input("the edit changes nothing".to_owned()));
        }
        Ok(edit::Edit { change, if_version: self.if_updated_on.map(Into::into) })
    }
}
