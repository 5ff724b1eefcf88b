//! Validated input of `edit`: changes of existing tasks.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};

use super::checks::{in_range, validate_instant};
use super::expiry::Expiry;
use super::ids::RunId;
use super::meta::Meta;
use super::new_task::{MAX_PRIORITY, MAX_TIMEOUT_SECS, check_meta_size, validate_data};
use super::records::Task;
use crate::run::backoff::Backoff;
use crate::run::retention::MAX_KEEP_SECS;
use crate::run::status::TaskStatus;
use crate::settings::Settings;

/// A task as it was when it was read, for a change that must not meet a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskVersion {
    /// UpdatedOn
    pub updated_on: DateTime<Utc>,
    /// The open run, with id 0 for none: a start may leave UpdatedOn unchanged. `None` allows every run.
    pub run: Option<RunId>,
}

impl TaskVersion {
    /// Returns true if the task has not changed since, and no other run of it has started.
    #[must_use]
    pub fn is_of(&self, task: &Task) -> bool {
        let is_started_since =
            task.status.is(TaskStatus::Processing) && self.run.is_some_and(|run| task.current_run_id != Some(run));
        self.updated_on == task.updated_on && !is_started_since
    }
}

impl From<DateTime<Utc>> for TaskVersion {
    fn from(updated_on: DateTime<Utc>) -> Self {
        Self { updated_on, run: None }
    }
}

/// A change as requested, before validation. `None` leaves a field unchanged; an inner `None` clears it, so that the class or the
/// settings apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeRequest {
    /// JSON text
    pub data: Option<String>,
    /// When it is to be processed.
    pub scheduled_on: Option<DateTime<Utc>>,
    /// When it expires.
    pub expires: Option<Option<Expiry>>,
    /// Failed attempts before it is exhausted.
    pub max_retries: Option<i64>,
    /// Seconds
    pub timeout_secs: Option<Option<i64>>,
    /// Higher first.
    pub priority: Option<i64>,
    /// The waits before its retries, as text.
    pub backoff: Option<Option<String>>,
    /// Seconds to keep it after it has finished, 0 for no limit.
    pub keep_secs: Option<Option<i64>>,
    /// Seconds to keep the results of its runs, also of ended ones, 0 for no limit.
    pub keep_results_secs: Option<Option<i64>>,
    /// Changes of its metadata; null removes a name.
    pub meta: Meta,
}

/// A change that may be stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskChange {
    /// Valid JSON that every engine can store.
    pub data: Option<String>,
    /// When it is to be processed.
    pub scheduled_on: Option<DateTime<Utc>>,
    /// When it expires. A duration counts from its time, or from now if that has passed.
    pub expires: Option<Option<Expiry>>,
    /// At least 1.
    pub max_retries: Option<i32>,
    /// Seconds, at least 1.
    pub timeout_secs: Option<Option<i32>>,
    /// -1000 to 1000, higher first.
    pub priority: Option<i32>,
    /// The waits before its retries.
    pub backoff: Option<Option<Backoff>>,
    /// Seconds to keep it after it has finished, 0 for no limit.
    pub keep_secs: Option<Option<i32>>,
    /// Seconds to keep the results of its runs, also of ended ones, 0 for no limit.
    pub keep_results_secs: Option<Option<i32>>,
    /// Changes of its metadata; null removes a name.
    pub meta: Meta,
}

impl ChangeRequest {
    /// Performs all checks that need no database.
    ///
    /// # Errors
    /// What is wrong with which input, as a sentence without a full stop; also if nothing is to be changed.
    pub fn validate(self, settings: &Settings) -> Result<TaskChange, String> {
        if let Some(data) = &self.data {
            validate_data(data, settings.max_data_bytes)?;
        }
        if let Some(when) = self.scheduled_on {
            validate_instant(when)?;
        }
        if let Some(Some(expires)) = self.expires {
            expires.check(self.scheduled_on)?;
        }
        let change = TaskChange {
            data: self.data,
            scheduled_on: self.scheduled_on,
            expires: self.expires,
            max_retries: in_range("max-retries", self.max_retries, 1, 1_000_000)?,
            timeout_secs: self.timeout_secs.map(|secs| in_range("timeout", secs, 1, MAX_TIMEOUT_SECS)).transpose()?,
            priority: in_range("priority", self.priority, -i64::from(MAX_PRIORITY), i64::from(MAX_PRIORITY))?,
            backoff: self.backoff.map(|text| text.map(|text| text.parse()).transpose()).transpose()?,
            keep_secs: keep_in_range("keep", self.keep_secs)?,
            keep_results_secs: keep_in_range("keep-results", self.keep_results_secs)?,
            meta: self.meta,
        };
        check_meta_size(&change.meta.to_string(), settings)?;
        if change == TaskChange::default() {
            return Err(
                "nothing to change: give --data, --at, --in, --expires, --max-retries, --timeout, --priority, --backoff, \
                 --keep, --keep-results or --meta"
                    .to_owned(),
            );
        }
        Ok(change)
    }
}

fn keep_in_range(name: &str, secs: Option<Option<i64>>) -> Result<Option<Option<i32>>, String> {
    secs.map(|secs| in_range(name, secs, 0, MAX_KEEP_SECS)).transpose()
}

impl TaskChange {
    /// Returns the values of this task that it replaces, by column name. Data is stored there as text, so that no byte is lost.
    #[must_use]
    pub fn replaced_in(&self, task: &Task) -> Map<String, Value> {
        [
            (self.data.is_some(), "TaskData", json!(task.data)),
            (self.scheduled_on.is_some(), "ScheduledOn", json!(task.scheduled_on)),
            (self.expires.is_some(), "StartBefore", json!(task.start_before)),
            (self.max_retries.is_some(), "MaxRetries", json!(task.max_retries)),
            (self.timeout_secs.is_some(), "Timeout", json!(task.timeout_secs)),
            (self.priority.is_some(), "Priority", json!(task.priority)),
            (self.backoff.is_some(), "Backoff", json!(task.backoff)),
            (self.keep_secs.is_some(), "Keep", json!(task.keep_secs)),
            (self.keep_results_secs.is_some(), "KeepResults", json!(task.keep_results_secs)),
            (!self.meta.is_empty(), "Meta", json!(task.meta)),
        ]
        .into_iter()
        .filter_map(|(is_changed, column, value)| is_changed.then(|| (column.to_owned(), value)))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validate(request: ChangeRequest) -> Result<TaskChange, String> {
        request.validate(&Settings::from_rows(&[]).0)
    }

    #[test]
    fn what_is_not_named_stays_and_none_takes_away() {
        let request = ChangeRequest {
            priority: Some(-3),
            timeout_secs: Some(None),
            backoff: Some(None),
            ..ChangeRequest::default()
        };
        let change = validate(request).unwrap();
        assert_eq!((change.priority, change.timeout_secs, &change.backoff), (Some(-3), Some(None), &Some(None)));
        assert_eq!((&change.data, change.max_retries), (&None, None));
    }

    #[test]
    fn what_queue_refuses_is_refused_here_and_so_is_nothing() {
        let cases = [
            (ChangeRequest::default(), "nothing"),
            (ChangeRequest { data: Some("{".to_owned()), ..ChangeRequest::default() }, "column"),
            (ChangeRequest { max_retries: Some(0), ..ChangeRequest::default() }, "1 to 1000000"),
            (ChangeRequest { timeout_secs: Some(Some(0)), ..ChangeRequest::default() }, "1 to 31536000"),
            (ChangeRequest { priority: Some(1_001), ..ChangeRequest::default() }, "-1000 to 1000"),
            (ChangeRequest { backoff: Some(Some("2h".to_owned())), ..ChangeRequest::default() }, "not a backoff"),
            (ChangeRequest { scheduled_on: Some(DateTime::UNIX_EPOCH), ..ChangeRequest::default() }, "2000 to 9999"),
        ];
        for (request, part) in cases {
            let error = validate(request).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
