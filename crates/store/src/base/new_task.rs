//! A task to insert: the value of each column, for every way of inserting rows.

use chrono::{DateTime, TimeDelta, Utc};

use crate::base::sql::SqlMoment;
use taskqueue_domain::task::new_task::NewTask;

/// A task to insert. `None` uses the default of the column. No insert names ScheduleId: users with the queueing role may not
/// write it, because they could otherwise add tasks to schedules of others.
#[derive(Clone, Debug)]
pub(crate) struct NewTaskRow {
    pub(crate) task_class: String,
    pub(crate) task_data: String,
    pub(crate) queued_by_id: String,
    pub(crate) scheduled_on: Option<SqlMoment>,
    pub(crate) start_before: Option<SqlMoment>,
    pub(crate) max_retries: Option<i32>,
    pub(crate) timeout_secs: Option<i32>,
    pub(crate) priority: i32,
    pub(crate) backoff: Option<String>,
    pub(crate) waiting_for: i32,
    pub(crate) unique_key: Option<String>,
    pub(crate) unique_until: Option<SqlMoment>,
    pub(crate) limit_key: Option<String>,
    pub(crate) tag: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) parent_id: Option<i64>,
    pub(crate) keep_secs: Option<i32>,
    pub(crate) keep_results_secs: Option<i32>,
    pub(crate) meta: Option<String>,
    pub(crate) recurrence: Option<String>,
    pub(crate) time_zone: Option<String>,
    pub(crate) catch_up: Option<String>,
    pub(crate) overlap: Option<String>,
    pub(crate) planned_on: Option<SqlMoment>,
}

/// The value of a column.
#[derive(Clone, Debug)]
pub(crate) enum ColumnValue<'a> {
    Text(&'a str),
    Number(i32),
    MaybeText(Option<&'a str>),
    MaybeNumber(Option<i32>),
    MaybeId(Option<i64>),
    /// In UTC, without a zone. Sent as text: some client libraries do not support all years.
    MaybeTime(Option<String>),
    /// As `MaybeTime`, or the current time of the database.
    TimeOrNow(Option<String>),
    /// A text, or the default of the column.
    TextOr(Option<&'a str>, &'static str),
}

/// The only list of columns: their names, and their values for a row.
macro_rules! columns {
    ($row:ident: $($name:literal = $value:expr,)+) => {
        impl NewTaskRow {
            /// The columns of TaskQueue that an insert names.
            pub(crate) const COLUMNS: [&str; [$($name),+].len()] = [$($name),+];

            /// Returns their values, in the same order.
            pub(crate) fn values(&self) -> [ColumnValue<'_>; Self::COLUMNS.len()] {
                let $row = self;
                [$($value),+]
            }
        }
    };
}

columns! { row:
    "TaskClass" = ColumnValue::Text(&row.task_class),
    "StartBefore" = ColumnValue::MaybeTime(text_of(row.start_before)),
    "TaskData" = ColumnValue::Text(&row.task_data),
    "QueuedById" = ColumnValue::Text(&row.queued_by_id),
    "MaxRetries" = ColumnValue::MaybeNumber(row.max_retries),
    "Timeout" = ColumnValue::MaybeNumber(row.timeout_secs),
    "Priority" = ColumnValue::Number(row.priority),
    "Backoff" = ColumnValue::MaybeText(row.backoff.as_deref()),
    "WaitingFor" = ColumnValue::Number(row.waiting_for),
    "UniqueKey" = ColumnValue::MaybeText(row.unique_key.as_deref()),
    "UniqueUntil" = ColumnValue::MaybeTime(text_of(row.unique_until)),
    "LimitKey" = ColumnValue::MaybeText(row.limit_key.as_deref()),
    "Tag" = ColumnValue::MaybeText(row.tag.as_deref()),
    "Name" = ColumnValue::MaybeText(row.name.as_deref()),
    "ParentId" = ColumnValue::MaybeId(row.parent_id),
    "Keep" = ColumnValue::MaybeNumber(row.keep_secs),
    "KeepResults" = ColumnValue::MaybeNumber(row.keep_results_secs),
    "Meta" = ColumnValue::MaybeText(row.meta.as_deref()),
    "Recurrence" = ColumnValue::MaybeText(row.recurrence.as_deref()),
    "TimeZone" = ColumnValue::TextOr(row.time_zone.as_deref(), "UTC"),
    "CatchUp" = ColumnValue::TextOr(row.catch_up.as_deref(), "latest"),
    "Overlap" = ColumnValue::TextOr(row.overlap.as_deref(), "wait"),
    "PlannedOn" = ColumnValue::MaybeTime(text_of(row.planned_on)),
    // The last one: COPY omits it for tasks that are due now.
    "ScheduledOn" = ColumnValue::TimeOrNow(text_of(row.scheduled_on)),
}

fn text_of(moment: Option<SqlMoment>) -> Option<String> {
    moment.map(|moment| DateTime::<Utc>::from(moment).format("%F %T%.6f").to_string())
}

impl NewTaskRow {
    /// Returns a task that waits for `waiting_for` others. `now` is the database's clock, if [`NewTask::needs_now`].
    pub(crate) fn new(task: &NewTask, waiting_for: i32, now: DateTime<Utc>) -> Self {
        let window_secs = task.unique.as_ref().and_then(|unique| unique.window_secs);
        Self {
            task_class: task.class.as_str().to_owned(),
            task_data: task.data.clone(),
            queued_by_id: task.queued_by.clone(),
            scheduled_on: task.scheduled_on.map(SqlMoment::from),
            start_before: task.expires.map(|expiry| expiry.start_before(task.scheduled_on.unwrap_or(now)).into()),
            max_retries: task.max_retries,
            timeout_secs: task.timeout_secs,
            priority: task.priority,
            backoff: task.backoff.as_ref().map(ToString::to_string),
            waiting_for,
            unique_key: task.unique.as_ref().map(|unique| unique.key.clone()),
            unique_until: window_secs.map(|secs| SqlMoment::from(now + TimeDelta::seconds(secs.into()))),
            limit_key: task.limit_key.clone(),
            tag: task.tag.clone(),
            name: task.name.clone(),
            parent_id: task.parent_id.map(|id| id.0),
            keep_secs: task.keep_secs,
            keep_results_secs: task.keep_results_secs,
            meta: task.meta.clone(),
            recurrence: task.recurrence.as_ref().map(|recurrence| recurrence.every().to_owned()),
            time_zone: task.recurrence.as_ref().map(|recurrence| recurrence.zone().to_owned()),
            catch_up: task.recurrence.as_ref().map(|recurrence| recurrence.catch_up().to_string()),
            overlap: task.recurrence.as_ref().map(|recurrence| recurrence.overlap().to_string()),
            planned_on: task.recurrence.as_ref().and(task.scheduled_on).map(SqlMoment::from),
        }
    }
}
