//! A task to queue, built option by option. Invalid values are reported when it is queued.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use super::error::Error;
use taskqueue_domain::task::expiry::Expiry;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::new_task::TaskRequest;
use taskqueue_domain::task::unique::OnConflict;

/// A task to queue: its class, and everything that differs from the defaults.
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
    /// Creates a task of this class with the data `{}`, to be processed as soon as possible.
    pub fn new(class: impl Into<String>) -> Self {
        let request = TaskRequest { class: class.into(), ..TaskRequest::default() };
        Self { request, delay: None, queued_by: None }
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
        self.request.data = Some(text.into());
        self
    }

    /// Processes it no earlier than this.
    pub fn at(mut self, instant: impl Into<DateTime<Utc>>) -> Self {
        self.request.scheduled_on = Some(instant.into());
        self
    }

    /// Processes it no earlier than this long from now, by the clock of the database.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Does not start it this long after its time or later: it then ends with the status `expired`. Rounded up to whole seconds.
    pub fn expires(mut self, time: Duration) -> Self {
        self.request.expires = Some(Expiry::After(whole_secs(time)));
        self
    }

    /// Does not start it at or after this time.
    pub fn expires_at(mut self, instant: impl Into<DateTime<Utc>>) -> Self {
        self.request.expires = Some(Expiry::At(instant.into()));
        self
    }

    /// Sets the number of failed attempts after which the task is exhausted; the default is the setting TaskQueueMaxRetries.
    pub fn max_retries(mut self, count: u32) -> Self {
        self.request.max_retries = Some(count.into());
        self
    }

    /// Sets the timeout: how long an attempt may run without an end or a report. Rounded up to whole seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request.timeout_secs = Some(whole_secs(timeout));
        self
    }

    /// Sets the priority: -1000 to 1000, higher first.
    pub fn priority(mut self, priority: i32) -> Self {
        self.request.priority = Some(priority.into());
        self
    }

    /// Sets the delays before retries, as `queue --backoff` takes them.
    pub fn backoff(mut self, waits: impl Into<String>) -> Self {
        self.request.backoff = Some(waits.into());
        self
    }

    /// Waits until these tasks have succeeded too.
    pub fn after(mut self, tasks: impl IntoIterator<Item = TaskId>) -> Self {
        self.request.after.extend(tasks);
        self
    }

    /// Waits until these tasks are finished too, in whatever way: succeeded, failed and not retried, cancelled, expired or
    /// quarantined.
    pub fn after_any(mut self, tasks: impl IntoIterator<Item = TaskId>) -> Self {
        self.request.after_any.extend(tasks);
        self
    }

    /// Allows at most one live task per class with this key. If there is one already, queueing returns that task.
    pub fn unique(mut self, key: impl Into<String>) -> Self {
        self.request.unique = Some(key.into());
        self
    }

    /// Sets what to do if the key is taken.
    pub fn on_conflict(mut self, what: OnConflict) -> Self {
        self.request.on_conflict = Some(what);
        self
    }

    /// Keeps its key taken for this time, even if the task finishes earlier.
    pub fn unique_for(mut self, time: Duration) -> Self {
        self.request.unique_for_secs = Some(whole_secs(time));
        self
    }

    /// Makes it a child of this task: `parent=ID` selects it, and handlers of that task may read and change it.
    pub fn parent(mut self, id: TaskId) -> Self {
        self.request.parent_id = Some(id);
        self
    }

    /// Limits how many tasks with this key run at once, in all classes: one, or the number set by `limit set --key`.
    pub fn limit_key(mut self, key: impl Into<String>) -> Self {
        self.request.limit_key = Some(key.into());
        self
    }

    /// Sets a name that lists show, and by which `name=NAME` selects the task; it need not be unique.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.request.name = Some(name.into());
        self
    }

    /// Sets a tag, such as an account. A claim with [`Claim::tag`](crate::Claim::tag) takes only tasks with one tag, and
    /// `tag=TAG` selects them.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.request.tag = Some(tag.into());
        self
    }

    /// Sets how long it is kept after it has finished, rounded up to whole seconds. By default, its class or the settings
    /// apply.
    pub fn keep(mut self, time: Duration) -> Self {
        self.request.keep_secs = Some(keep_secs(time));
        self
    }

    /// Keeps it until it is deleted by a selection.
    pub fn keep_forever(mut self) -> Self {
        self.request.keep_secs = Some(0);
        self
    }

    /// Sets how long the results of its runs are kept after each run ends. By default, its class or the setting applies.
    pub fn keep_results(mut self, time: Duration) -> Self {
        self.request.keep_results_secs = Some(keep_secs(time));
        self
    }

    /// Keeps the results of its runs as long as the task.
    pub fn keep_results_forever(mut self) -> Self {
        self.request.keep_results_secs = Some(0);
        self
    }

    /// Sets a value of its metadata, by which it can be selected: `meta.NAME=VALUE`.
    ///
    /// # Errors
    /// Returns [`Error::Json`], or [`Error::Input`] if the name is empty or too long.
    pub fn meta(mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<Self, Error> {
        let json = serde_json::to_string(value).map_err(Error::Json)?;
        self.request.meta.set(name, &json).map_err(Error::Input)?;
        Ok(self)
    }

    /// Repeats it in this time zone, like `Europe/Berlin` or `UTC`: a cron expression, `15m`, `mon-fri 9:00` or `daily 3:00`.
    pub fn every(mut self, when: impl Into<String>, zone: impl Into<String>) -> Self {
        self.request.every = Some(when.into());
        self.request.time_zone = Some(zone.into());
        self
    }

    /// Sets who queues it; the default is the user of this process.
    pub fn queued_by(mut self, name: impl Into<String>) -> Self {
        self.queued_by = Some(name.into());
        self
    }

    /// Returns true if queueing needs the time of the database's clock.
    pub(super) const fn needs_now(&self) -> bool {
        self.delay.is_some()
    }

    /// Returns the request, with the delay counted from `now`.
    pub(super) fn into_request(self, user: &str, now: Option<DateTime<Utc>>) -> Result<TaskRequest, Error> {
        let mut request = self.request;
        if let (Some(delay), Some(now)) = (self.delay, now) {
            request.scheduled_on = Some(later(now, delay).map_err(Error::Input)?);
        }
        request.queued_by = self.queued_by.unwrap_or_else(|| user.to_owned());
        Ok(request)
    }
}

/// Returns `now` plus `delay`.
pub(super) fn later(now: DateTime<Utc>, delay: Duration) -> Result<DateTime<Utc>, String> {
    let later = TimeDelta::from_std(delay).ok().and_then(|delay| now.checked_add_signed(delay));
    later.ok_or_else(|| "the delay is too long".to_owned())
}

/// Rounds up to at least one second, because 0 means no limit.
pub(super) fn keep_secs(time: Duration) -> i64 {
    whole_secs(time).max(1)
}

/// Rounds up to whole seconds.
pub(super) fn whole_secs(time: Duration) -> i64 {
    let rounded_up = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    i64::try_from(rounded_up).unwrap_or(i64::MAX)
}
