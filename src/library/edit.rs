//! [`Edit`]: what is to be different about tasks, part by part.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::error::Error;
use super::new_task::{keep_secs, later, whole_secs};
use taskqueue_domain::task::task_change::ChangeRequest;
use taskqueue_engine::change::edit;
use taskqueue_engine::{Context, EngineError, EngineResult};

/// A change of tasks, for [`TaskQueue::edit`](crate::TaskQueue::edit). What is not set stays as it is.
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
    /// Changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the data: any value that serde can write as JSON.
    ///
    /// # Errors
    /// [`Error::Json`]: JSON has no such value, such as a map whose keys are no texts.
    pub fn data(self, value: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
        Ok(self.json(serde_json::to_string(value).map_err(Error::Json)?))
    }

    /// Sets the data as JSON text, which is kept to the byte.
    pub fn json(mut self, text: impl Into<String>) -> Self {
        self.change.data = Some(text.into());
        self
    }

    /// Sets the time before which it is not processed.
    pub fn at(mut self, instant: impl Into<DateTime<Utc>>) -> Self {
        self.change.scheduled_on = Some(instant.into());
        self
    }

    /// Sets that time to so long from now, by the clock of the database.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Sets how many attempts may fail before it is exhausted.
    pub fn max_retries(mut self, count: u32) -> Self {
        self.change.max_retries = Some(count.into());
        self
    }

    /// Sets the time without an end or a report after which an attempt is ended; a part of a second counts as a whole one.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.change.timeout_secs = Some(Some(whole_secs(timeout)));
        self
    }

    /// Takes the timeout of the task away: that of its class or the setting counts.
    pub fn default_timeout(mut self) -> Self {
        self.change.timeout_secs = Some(None);
        self
    }

    /// Sets the priority: -1000 to 1000, higher first.
    pub fn priority(mut self, priority: i32) -> Self {
        self.change.priority = Some(priority.into());
        self
    }

    /// Sets the waits before retries, as `edit --backoff` takes them.
    pub fn backoff(mut self, waits: impl Into<String>) -> Self {
        self.change.backoff = Some(Some(waits.into()));
        self
    }

    /// Takes the waits of the task away: those of its class or the settings count.
    pub fn default_backoff(mut self) -> Self {
        self.change.backoff = Some(None);
        self
    }

    /// Sets how long it is kept after it is over; a part of a second counts as a whole one.
    pub fn keep(mut self, time: Duration) -> Self {
        self.change.keep_secs = Some(Some(keep_secs(time)));
        self
    }

    /// Keeps it until somebody deletes it by name.
    pub fn keep_forever(mut self) -> Self {
        self.change.keep_secs = Some(Some(0));
        self
    }

    /// Takes that away: what its class or the settings say counts.
    pub fn default_keep(mut self) -> Self {
        self.change.keep_secs = Some(None);
        self
    }

    /// Sets how long the results of all its runs are kept.
    pub fn keep_results(mut self, time: Duration) -> Self {
        self.change.keep_results_secs = Some(Some(keep_secs(time)));
        self
    }

    /// Keeps the results of its runs as long as it is kept.
    pub fn keep_results_forever(mut self) -> Self {
        self.change.keep_results_secs = Some(Some(0));
        self
    }

    /// Takes that away: what its class or the setting says counts.
    pub fn default_keep_results(mut self) -> Self {
        self.change.keep_results_secs = Some(None);
        self
    }

    /// Sets a value of its metadata; `None` or `()` takes the name away.
    ///
    /// # Errors
    /// [`Error::Json`], or [`Error::Input`] for a name that is empty or too long.
    pub fn meta(mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
        let json = serde_json::to_string(value).map_err(Error::Json)?;
        self.change.meta.set(name, &json).map_err(Error::Input)?;
        Ok(self)
    }

    /// Only if nobody has changed the task since it was read: `Task::updated_on` of then. Otherwise the task is refused with
    /// [`Error::Stale`].
    pub fn if_updated_on(mut self, version: DateTime<Utc>) -> Self {
        self.if_updated_on = Some(version);
        self
    }

    /// What the engine edits, with a delay that counts from now.
    pub(super) fn to_request(&self, ctx: &mut Context) -> EngineResult<edit::Edit> {
        let mut change = self.change.clone();
        if let Some(delay) = self.delay {
            change.scheduled_on = Some(later(ctx.now()?, delay).map_err(EngineError::Input)?);
        }
        if change == ChangeRequest::default() {
            return Err(EngineError::Input("the edit changes nothing".to_owned()));
        }
        Ok(edit::Edit { change, if_updated_on: self.if_updated_on })
    }
}
