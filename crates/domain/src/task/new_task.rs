//! Validated input of `queue`: a [`NewTask`] can only be created through the checks here.

use chrono::{DateTime, Utc};

use super::checks::{in_range, validate_instant};
use super::dependencies::Prerequisite;
use super::expiry::Expiry;
use super::ids::TaskId;
use super::meta::{MAX_META_BYTES, Meta};
use super::name::{check_name, check_schedule_name};
use super::task_class::TaskClass;
use super::unique::{OnConflict, Uniqueness, check_key};
use crate::run::backoff::Backoff;
use crate::run::retention::MAX_KEEP_SECS;
use crate::settings::Settings;
use crate::text::json::check_storable;
use crate::time::recurrence::{CatchUp, Overlap, Recurrence};

/// The highest priority; the lowest is its negative.
pub const MAX_PRIORITY: i32 = 1_000;
/// The longest timeout of a task, in seconds: a year.
pub const MAX_TIMEOUT_SECS: i64 = 31_536_000;
/// The longest QueuedBy, in characters.
pub const MAX_QUEUED_BY_LENGTH: usize = 190;

/// A task as requested, before validation.
#[derive(Clone, Debug, Default)]
pub struct TaskRequest {
    /// Task class.
    pub class: String,
    /// JSON text; `None` means `{}`.
    pub data: Option<String>,
    /// When it is to be processed; `None` means now, by the database's clock.
    pub scheduled_on: Option<DateTime<Utc>>,
    /// When it expires, unless an attempt has started; `None` means never.
    pub expires: Option<Expiry>,
    /// Failed attempts before it is exhausted; `None` uses the setting.
    pub max_retries: Option<i64>,
    /// Seconds; `None` uses the timeout of the class or of the settings.
    pub timeout_secs: Option<i64>,
    /// Higher first.
    pub priority: Option<i64>,
    /// The waits before its retries, as text; `None` uses those of the class or of the settings.
    pub backoff: Option<String>,
    /// Tasks that must succeed before it runs.
    pub after: Vec<TaskId>,
    /// Tasks that must be finished before it runs, whatever their outcome.
    pub after_any: Vec<TaskId>,
    /// A key that no other live task of its class may have.
    pub unique: Option<String>,
    /// What to do if another task has the key; `None` returns that task.
    pub on_conflict: Option<OnConflict>,
    /// Seconds for which the key stays taken, even if the task ends sooner.
    pub unique_for_secs: Option<i64>,
    /// The limit key, if any: only a limited number of runs with the same key are processed at once.
    pub limit_key: Option<String>,
    /// A tag by which claimants can ask for tasks, such as an account.
    pub tag: Option<String>,
    /// A name that tells people what it does; not unique.
    pub name: Option<String>,
    /// The task whose handler queues this one.
    pub parent_id: Option<TaskId>,
    /// Seconds to keep it after it has finished, 0 for no limit; `None` uses the class or the setting.
    pub keep_secs: Option<i64>,
    /// Seconds to keep the results of each run after its end, with the same special values.
    pub keep_results_secs: Option<i64>,
    /// Its metadata.
    pub meta: Meta,
    /// A cron expression, if this is the first task of a schedule.
    pub every: Option<String>,
    /// The time zone of the expression; `None` means UTC.
    pub time_zone: Option<String>,
    /// How the schedule catches up; `None` means latest.
    pub catch_up: Option<String>,
    /// Whether the tasks of the schedule replace each other; `None` means wait.
    pub overlap: Option<String>,
    /// Who queues it.
    pub queued_by: String,
}

/// A task that may be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    /// Task class.
    pub class: TaskClass,
    /// Valid JSON that every engine can store.
    pub data: String,
    /// When it is to be processed; `None` means now, by the database's clock.
    pub scheduled_on: Option<DateTime<Utc>>,
    /// When it expires, if it does.
    pub expires: Option<Expiry>,
    /// At least 1.
    pub max_retries: Option<i32>,
    /// Seconds, at least 1.
    pub timeout_secs: Option<i32>,
    /// -1000 to 1000, higher first.
    pub priority: i32,
    /// The waits before its retries.
    pub backoff: Option<Backoff>,
    /// The tasks that must succeed before it runs.
    pub after: Vec<Prerequisite>,
    /// The tasks that must be finished before it runs, whatever their outcome.
    pub after_any: Vec<Prerequisite>,
    /// Its unique key, if it has one.
    pub unique: Option<Uniqueness>,
    /// The limit key, if any: only a limited number of runs with the same key are processed at once.
    pub limit_key: Option<String>,
    /// A tag by which claimants can ask for tasks, such as an account.
    pub tag: Option<String>,
    /// A name that tells people what it does; not unique.
    pub name: Option<String>,
    /// The task whose handler queues this one.
    pub parent_id: Option<TaskId>,
    /// Seconds to keep it after it has finished, 0 for no limit.
    pub keep_secs: Option<i32>,
    /// Seconds to keep the results of each run after its end, 0 for no limit.
    pub keep_results_secs: Option<i32>,
    /// Its metadata; not an empty object.
    pub meta: Option<String>,
    /// The schedule of which it is the first task.
    pub recurrence: Option<Recurrence>,
    /// Who queues it.
    pub queued_by: String,
}

impl NewTask {
    /// Returns true if it waits for other tasks.
    #[must_use]
    pub fn has_prerequisites(&self) -> bool {
        !self.after.is_empty() || !self.after_any.is_empty()
    }

    /// Returns true if a time of its row counts from the moment at which it is inserted.
    #[must_use]
    pub fn needs_now(&self) -> bool {
        self.unique.as_ref().is_some_and(|unique| unique.window_secs.is_some())
            || self.scheduled_on.is_none() && matches!(self.expires, Some(Expiry::After(_)))
    }

    /// Sets the first task of a schedule to its first planned time, counted from `scheduled_on` or else from `now`.
    ///
    /// # Errors
    /// The schedule has no planned time, or the task expires before it.
    pub fn planned(mut self, now: DateTime<Utc>) -> Result<Self, String> {
        if let Some(recurrence) = &self.recurrence {
            let first = recurrence.first_from(self.scheduled_on.unwrap_or(now));
            self.scheduled_on = Some(first.ok_or_else(|| format!("\"{}\" matches no time", recurrence.every()))?);
            self.expires.map_or(Ok(()), |expires| expires.check(self.scheduled_on))?;
        }
        Ok(self)
    }
}

/// Why a valid task cannot be queued in the current state of the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueRefusal {
    /// A prerequisite does not exist.
    #[error("there is no task {0} to wait for")]
    NoSuchTask(TaskId),
    /// Its key is taken.
    #[error("task {holder} has the key \"{key}\" already; its status is {status}")]
    KeyTaken {
        /// The key.
        key: String,
        /// The task that has it.
        holder: TaskId,
        /// Its status.
        status: String,
    },
    /// Its key is taken by a task that the caller must not see.
    #[error("another task has the key \"{key}\" already")]
    KeyTakenByHidden {
        /// The key.
        key: String,
    },
    /// An earlier task of the batch has the same key.
    #[error("an earlier line has the key \"{key}\" already")]
    KeyInBatch {
        /// The key.
        key: String,
    },
    /// Tasks with the same key become one task, which would wait for itself.
    #[error("this task would wait for itself forever, because lines with the same key are one task")]
    CircleByKeys,
}

impl TaskRequest {
    /// Performs all checks that need no database.
    ///
    /// # Errors
    /// What is wrong with which input, as a sentence without a full stop.
    pub fn validate(self, settings: &Settings) -> Result<NewTask, String> {
        let class: TaskClass = self.class.parse()?;
        let data = self.data.unwrap_or_else(|| "{}".to_owned());
        validate_data(&data, settings.max_data_bytes)?;
        if let Some(when) = self.scheduled_on {
            validate_instant(when)?;
        }
        if let Some(expires) = self.expires {
            // The first time of a schedule may be later.
            expires.check(self.scheduled_on.filter(|_| self.every.is_none()))?;
        }
        if self.queued_by.chars().count() > MAX_QUEUED_BY_LENGTH || self.queued_by.contains('\0') {
            return Err(format!("by may have at most {MAX_QUEUED_BY_LENGTH} characters and no NUL"));
        }
        let unique = validate_unique(
            self.unique,
            self.on_conflict,
            self.unique_for_secs,
            self.after.is_empty() && self.after_any.is_empty(),
        )?;
        if let Some(unique) = unique.as_ref().filter(|_| self.every.is_some()) {
            validate_key_of_schedule(unique)?;
        }
        let recurrence = match (self.every, self.time_zone, self.catch_up, self.overlap) {
            (None, None, None, None) => None,
            (None, ..) => {
                return Err("a time zone, a catch-up mode and an overlap need a schedule: set every".to_owned());
            }
            (Some(every), zone, catch_up, overlap) => Some(
                Recurrence::from_phrase(
                    &every,
                    zone.as_deref().unwrap_or("UTC"),
                    catch_up.as_deref().unwrap_or(CatchUp::default().as_str()),
                )?
                .with_overlap(overlap.as_deref().unwrap_or(Overlap::default().as_str()))?,
            ),
        };
        for (what, key) in [("limit key", &self.limit_key), ("tag", &self.tag)] {
            key.as_ref().map_or(Ok(()), |key| check_key(what, key))?;
        }
        let check = if recurrence.is_some() { check_schedule_name } else { check_name };
        self.name.as_deref().map_or(Ok(()), check)?;
        let max_retries = in_range("max-retries", self.max_retries, 1, 1_000_000)?;
        Ok(NewTask {
            class,
            data,
            scheduled_on: self.scheduled_on,
            expires: self.expires,
            max_retries,
            timeout_secs: in_range("timeout", self.timeout_secs, 1, MAX_TIMEOUT_SECS)?,
            priority: in_range("priority", self.priority, -i64::from(MAX_PRIORITY), i64::from(MAX_PRIORITY))?
                .unwrap_or(0),
            backoff: self.backoff.map(|text| text.parse()).transpose()?,
            unique,
            limit_key: self.limit_key,
            tag: self.tag,
            name: self.name,
            parent_id: self.parent_id,
            keep_secs: in_range("keep", self.keep_secs, 0, MAX_KEEP_SECS)?,
            keep_results_secs: in_range("keep-results", self.keep_results_secs, 0, MAX_KEEP_SECS)?,
            meta: validate_meta(&self.meta, settings)?,
            after: self.after.into_iter().map(Prerequisite::Task).collect(),
            after_any: self.after_any.into_iter().map(Prerequisite::Task).collect(),
            recurrence,
            queued_by: self.queued_by,
        })
    }
}

/// Returns the metadata as stored: a new task has nothing to remove.
fn validate_meta(meta: &Meta, settings: &Settings) -> Result<Option<String>, String> {
    if let Some(key) = meta.taken_away() {
        return Err(format!("the metadata \"{key}\" has no value"));
    }
    let text = (!meta.is_empty()).then(|| meta.to_string());
    text.as_deref().map_or(Ok(()), |text| check_meta_size(text, settings)).map(|()| text)
}

/// Checks that metadata is no larger than data may be, and no larger than what attempts may add to.
///
/// # Errors
/// It is too large.
pub(crate) fn check_meta_size(text: &str, settings: &Settings) -> Result<(), String> {
    let most = MAX_META_BYTES.min(settings.max_data_bytes);
    if text.len() > most {
        return Err(format!("the metadata has {} bytes; at most {most} are allowed", text.len()));
    }
    Ok(())
}

fn validate_unique(
    key: Option<String>,
    on_conflict: Option<OnConflict>,
    window_secs: Option<i64>,
    waits_for_nobody: bool,
) -> Result<Option<Uniqueness>, String> {
    let Some(key) = key else {
        let is_about_keys = on_conflict.is_some() || window_secs.is_some();
        return if is_about_keys { Err("on-conflict and unique-for need a unique key".to_owned()) } else { Ok(None) };
    };
    check_key("unique key", &key)?;
    let on_conflict = on_conflict.unwrap_or_default();
    if on_conflict == OnConflict::Replace && !waits_for_nobody {
        return Err(
            "a task that replaces another cannot wait for others: the replaced task keeps the tasks it waits for"
                .to_owned(),
        );
    }
    let window_secs = in_range("unique-for", window_secs, 1, MAX_TIMEOUT_SECS)?;
    Ok(Some(Uniqueness { key, window_secs, on_conflict }))
}

fn validate_key_of_schedule(unique: &Uniqueness) -> Result<(), String> {
    if unique.window_secs.is_some() {
        return Err("a schedule keeps its key until it ends: unique-for is for tasks without a schedule".to_owned());
    }
    if unique.on_conflict == OnConflict::Replace {
        return Err(
            "a schedule cannot replace a task: change the existing one with `schedule edit` and `edit`".to_owned()
        );
    }
    Ok(())
}

/// Checks that `data` is one JSON text that every engine can store.
///
/// # Errors
/// The text is too large, not JSON, or JSON that some engine cannot store, with line and column.
pub fn validate_data(data: &str, max_bytes: usize) -> Result<(), String> {
    if data.len() > max_bytes {
        return Err(format!("the data has {} bytes; at most {max_bytes} are allowed", data.len()));
    }
    check_storable(data).map_err(|what| format!("the data {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings::from_rows(&[]).0
    }

    fn request() -> TaskRequest {
        TaskRequest { class: "mail.send".into(), queued_by: "root".into(), ..TaskRequest::default() }
    }

    #[test]
    fn max_retries_is_left_to_the_setting_when_not_given() {
        let task = request().validate(&settings()).unwrap();
        assert_eq!((task.max_retries, task.data.as_str(), task.priority), (None, "{}", 0));
    }

    #[test]
    fn data_is_kept_to_the_byte() {
        let data = " {\"b\": 1.0, \"a\": 12345678901234567890123, \"a\": 2 } ";
        let task = TaskRequest { data: Some(data.into()), ..request() }.validate(&settings()).unwrap();
        assert_eq!(task.data, data);
    }

    #[test]
    fn data_that_is_not_json_is_refused_with_the_place() {
        for (data, place) in [("{\"a\":}", "column 6"), ("", "EOF"), ("{} {}", "trailing"), ("nul", "column")] {
            let error = TaskRequest { data: Some(data.into()), ..request() }.validate(&settings()).unwrap_err();
            assert!(error.contains(place), "{data}: {error}");
        }
    }

    #[test]
    fn data_that_not_every_engine_can_store_is_refused() {
        for data in ["\"a\\u0000b\"", "{\"\\\\\\u0000\":1}"] {
            assert!(validate_data(data, 100).is_err(), "{data}");
        }
        for data in ["\"a\\\\u0000b\"", "\"\\u0001\""] {
            assert_eq!(validate_data(data, 100), Ok(()), "{data}");
        }
    }

    #[test]
    fn data_larger_than_the_limit_is_refused() {
        assert!(validate_data("\"12345678\"", 9).unwrap_err().contains("10 bytes"));
        assert_eq!(validate_data("\"12345678\"", 10), Ok(()));
    }

    #[test]
    fn negative_and_huge_numbers_are_refused_with_their_range() {
        let cases = [
            (TaskRequest { max_retries: Some(0), ..request() }, "1 to 1000000"),
            (TaskRequest { max_retries: Some(-1), ..request() }, "1 to 1000000"),
            (TaskRequest { timeout_secs: Some(0), ..request() }, "1 to 31536000"),
            (TaskRequest { timeout_secs: Some(i64::MAX), ..request() }, "1 to 31536000"),
            (TaskRequest { priority: Some(1001), ..request() }, "-1000 to 1000"),
            (TaskRequest { keep_secs: Some(-1), ..request() }, "0 to 2000000000"),
            (TaskRequest { keep_results_secs: Some(2_000_000_001), ..request() }, "0 to 2000000000"),
            (TaskRequest { scheduled_on: Some(DateTime::UNIX_EPOCH), ..request() }, "2000 to 9999"),
        ];
        for (request, range) in cases {
            let error = request.validate(&settings()).unwrap_err();
            assert!(error.contains(range), "{error}");
        }
    }
}
