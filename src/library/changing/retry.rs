//! [`Retry`]: how tasks are retried.

use std::time::Duration;

use serde::Serialize;

use crate::library::error::Error;
use taskqueue_domain::limits::limit::Rate;

/// Options for retrying tasks, for [`TaskQueue::retry_with`](crate::TaskQueue::retry_with).
///
/// ```
/// # use std::time::Duration;
/// # use taskqueue::{Retry, Selection, TaskQueue};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let queue = TaskQueue::connect(&directory.path().join("tasks.db").display().to_string())?;
/// let failed: Selection = "class=mail.send error=smtp:451".parse()?;
/// // Do five of them succeed now?
/// let changes = queue.retry_with(failed.clone(), &Retry::new().sample(5))?;
/// # assert!(changes.changed.is_empty());
/// // The others, ten in a minute.
/// let changes = queue.retry_with(failed, &Retry::new().rate(10, Duration::from_secs(60)))?;
/// # assert!(changes.changed.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Retry {
    pub(super) data: Option<String>,
    pub(super) sample: Option<usize>,
    rate: Option<(u32, Duration)>,
    pub(super) is_by_force: bool,
}

impl Retry {
    /// Retries all of the tasks at once, with their own data.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets other data; the previous data of a task is kept in its events.
    ///
    /// # Errors
    /// Returns [`Error::Json`] if the value has no JSON form, such as a map whose keys are not strings.
    pub fn data(mut self, value: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
        self.data = Some(serde_json::to_string(value).map_err(Error::Json)?);
        Ok(self)
    }

    /// Retries only this many of the selected tasks, the oldest.
    pub fn sample(mut self, count: usize) -> Self {
        self.sample = Some(count);
        self
    }

    /// Spreads the retries: `count` tasks become due per `time`.
    pub fn rate(mut self, count: u32, time: Duration) -> Self {
        self.rate = Some((count, time));
        self
    }

    /// Also retries tasks in progress at a claimant: first takes their runs from it, as
    /// [`TaskQueue::take_back`](crate::TaskQueue::take_back) does.
    pub fn by_force(mut self) -> Self {
        self.is_by_force = true;
        self
    }

    pub(crate) fn checked_rate(&self) -> Result<Option<Rate>, Error> {
        self.rate.map(|(count, time)| Rate::of(count.into(), time)).transpose().map_err(Error::Input)
    }
}
