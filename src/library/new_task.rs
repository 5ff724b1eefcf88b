//! A task that a program asks for, part by part. What is wrong with it is said when it is queued.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use super::error::Error;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::new_task::TaskRequest;
use taskqueue_domain::task::unique::OnConflict;

/// A task to queue: its class, and what is not to be as it is by default.
///
/// ```
/// # fn main() -> Result<(), taskqueue::Error> {
/// use std::time::Duration;
/// use taskqueue::NewTask;
///
/// #[derive(serde::Serialize)]
/// struct Mail<'a> {
///     to: &'a str,
/// }
///
/// let task = NewTask::new("mail.send").data(&Mail { to: "ann@example.org" })?.delay(Duration::from_secs(60)).priority(5);
/// # let _ = task;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct NewTask {
    request: TaskRequest,
    delay: Option<Duration>,
    queued_by: Option<String>,
}

impl NewTask {
    /// A task of this class, with the data `{}`, to be processed as soon as may be.
    pub fn new(class: impl Into<String>) -> Self {
        let request = TaskRequest { class: class.into(), ..TaskRequest::default() };
        Self { request, delay: None, queued_by: None }
    }

    /// Its data: any value that serde can write as JSON.
    ///
    /// # Errors
    /// [`Error::Json`]: JSON has no such value, such as a map whose keys are no texts.
    pub fn data(self, value: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
        Ok(self.json(serde_json::to_string(value).map_err(Error::Json)?))
    }

    /// Its data as JSON text, which is kept to the byte.
    pub fn json(mut self, text: impl Into<String>) -> Self {
        self.request.data = Some(text.into());
        self
    }

    /// Not before this instant.
    pub fn at(mut self, instant: impl Into<DateTime<Utc>>) -> Self {
        self.request.scheduled_on = Some(instant.into());
        self
    }

    /// Not before this time from now has passed, by the clock of the database.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// How many attempts may fail before it is exhausted; by default what the setting TaskQueueMaxRetries says.
    pub fn max_retries(mut self, count: u32) -> Self {
        self.request.max_retries = Some(count.into());
        self
    }

    /// After how long without an end or a report an attempt is ended; a part of a second counts as a whole one.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request.timeout_secs = Some(whole_secs(timeout));
        self
    }

    /// -1000 to 1000, higher first.
    pub fn priority(mut self, priority: i32) -> Self {
        self.request.priority = Some(priority.into());
        self
    }

    /// The waits before its retries, as `queue --backoff` takes them.
    pub fn backoff(mut self, waits: impl Into<String>) -> Self {
        self.request.backoff = Some(waits.into());
        self
    }

    /// Once these tasks have succeeded too.
    pub fn after(mut self, tasks: impl IntoIterator<Item = TaskId>) -> Self {
        self.request.after.extend(tasks);
        self
    }

    /// Of the live tasks of its class only one has this key; where one has it, that one is what was queued.
    pub fn unique(mut self, key: impl Into<String>) -> Self {
        self.request.unique = Some(key.into());
        self
    }

    /// What becomes of it if its key is taken.
    pub fn on_conflict(mut self, what: OnConflict) -> Self {
        self.request.on_conflict = Some(what);
        self
    }

    /// Its key stays taken for this time, even if it ends before.
    pub fn unique_for(mut self, time: Duration) -> Self {
        self.request.unique_for_secs = Some(whole_secs(time));
        self
    }

    /// Makes it a child of this task: `parent=ID` selects it, and a handler of that task may read and change it.
    pub fn parent(mut self, id: TaskId) -> Self {
        self.request.parent_id = Some(id);
        self
    }

    /// Of the tasks with this key, of whatever class, only so many are processed at once: one, or what `limits` says.
    pub fn limit_key(mut self, key: impl Into<String>) -> Self {
        self.request.limit_key = Some(key.into());
        self
    }

    /// What it belongs to, such as an account: a claim with [`Claim::tag`](crate::Claim::tag) takes only tasks with one tag, and
    /// `tag=TAG` selects them.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.request.tag = Some(tag.into());
        self
    }

    /// How long it is kept after it is over; a part of a second counts as a whole one. By default what its class or the settings say.
    pub fn keep(mut self, time: Duration) -> Self {
        self.request.keep_secs = Some(keep_secs(time));
        self
    }

    /// It is kept until somebody deletes it by name.
    pub fn keep_forever(mut self) -> Self {
        self.request.keep_secs = Some(0);
        self
    }

    /// How long the results of its runs are kept, after the end of each. By default what its class or the setting says.
    pub fn keep_results(mut self, time: Duration) -> Self {
        self.request.keep_results_secs = Some(keep_secs(time));
        self
    }

    /// The results of its runs are kept as long as it is.
    pub fn keep_results_forever(mut self) -> Self {
        self.request.keep_results_secs = Some(0);
        self
    }

    /// A value of its metadata, by which it can be selected: `meta.NAME=VALUE`.
    ///
    /// # Errors
    /// [`Error::Json`], or [`Error::Input`] for a name that is empty or too long.
    pub fn meta(mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
        let json = serde_json::to_string(value).map_err(Error::Json)?;
        self.request.meta.set(name, &json).map_err(Error::Input)?;
        Ok(self)
    }

    /// Again and again: a cron expression in the time zone of this name, like `Europe/Berlin` or `UTC`.
    pub fn every(mut self, cron: impl Into<String>, zone: impl Into<String>) -> Self {
        self.request.every = Some(cron.into());
        self.request.time_zone = Some(zone.into());
        self
    }

    /// Who queues it; by default the user that this process runs as.
    pub fn queued_by(mut self, name: impl Into<String>) -> Self {
        self.queued_by = Some(name.into());
        self
    }

    /// Whether the clock of the database is needed.
    pub(super) const fn needs_now(&self) -> bool {
        self.delay.is_some()
    }

    /// The request, with a delay that counts from `now`.
    pub(super) fn into_request(self, user: &str, now: Option<DateTime<Utc>>) -> Result<TaskRequest, Error> {
        let mut request = self.request;
        if let (Some(delay), Some(now)) = (self.delay, now) {
            request.scheduled_on = Some(later(now, delay).map_err(Error::Input)?);
        }
        request.queued_by = self.queued_by.unwrap_or_else(|| user.to_owned());
        Ok(request)
    }
}

/// The moment that lies `delay` after `now`.
pub(super) fn later(now: DateTime<Utc>, delay: Duration) -> Result<DateTime<Utc>, String> {
    let later = TimeDelta::from_std(delay).ok().and_then(|delay| now.checked_add_signed(delay));
    later.ok_or_else(|| "the delay is too long".to_owned())
}

/// At least a second: 0 stands for no limit.
pub(super) fn keep_secs(time: Duration) -> i64 {
    whole_secs(time).max(1)
}

/// A part of a second counts as a whole one.
pub(super) fn whole_secs(time: Duration) -> i64 {
    let rounded_up = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    i64::try_from(rounded_up).unwrap_or(i64::MAX)
}
