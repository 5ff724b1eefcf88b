//! The data of a task that its handler needs: read in one place for all claim statements.

use diesel::prelude::*;
use diesel::sql_types::{Integer, Nullable, Text, Timestamp};

use super::cells::{Cell, ExactInt, ExactText, JsonText};
use super::sql::SqlMoment;
use taskqueue_domain::monitoring::run_times::DueTimes;
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_domain::task::trace::Trace;
use taskqueue_domain::text::unreadable::{StoredText, Unreadable};

/// As stored in the rows of the task and of its run.
#[derive(Clone, Debug, Queryable, QueryableByName)]
pub(crate) struct ContentRow {
    #[diesel(sql_type = Text)]
    pub(crate) class: Cell<ExactText>,
    #[diesel(sql_type = Text)]
    pub(crate) data: Cell<JsonText>,
    #[diesel(sql_type = Nullable<Integer>)]
    pub(crate) max_retries: Option<Cell<ExactInt>>,
    #[diesel(sql_type = Nullable<Integer>)]
    pub(crate) timeout_secs: Option<Cell<ExactInt>>,
    /// [`ContentRow::read`] chooses between this and the next field: MariaDB's COALESCE treats a zero date, which cannot be read,
    /// as NULL.
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) planned_on: Option<Cell<SqlMoment>>,
    #[diesel(sql_type = Timestamp)]
    pub(crate) scheduled_on: Cell<SqlMoment>,
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) next_attempt_on: Option<Cell<SqlMoment>>,
    #[diesel(sql_type = Nullable<Text>)]
    pub(crate) meta: Option<Cell<JsonText>>,
}

/// The data of a task, with all columns readable.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    pub(crate) class: TaskClass,
    pub(crate) data: String,
    pub(crate) max_retries: Option<i32>,
    pub(crate) timeout_secs: Option<i32>,
    pub(crate) planned_on: SqlMoment,
    /// `None` if a time cannot be read that the handler does not need.
    pub(crate) due: Option<DueTimes>,
    pub(crate) trace: Trace,
}

impl ContentRow {
    /// Reads all columns.
    ///
    /// # Errors
    /// The first column that cannot be read: no part of the row reaches a handler.
    pub(crate) fn read(self) -> Result<Content, Unreadable> {
        let class = self.class.read("TaskClass")?.0;
        let scheduled_on = self.scheduled_on.read("ScheduledOn");
        let next_attempt_on = self.next_attempt_on.map(|cell| cell.read("NextAttemptOn")).transpose().ok();
        let due = scheduled_on.as_ref().ok().zip(next_attempt_on).map(|(scheduled_on, next_attempt_on)| DueTimes {
            scheduled_on: (*scheduled_on).into(),
            next_attempt_on: next_attempt_on.map(Into::into),
        });
        let bad_name = |_| Unreadable::of_text("TaskClass", StoredText::from(class.as_bytes()));
        Ok(Content {
            class: class.parse().map_err(bad_name)?,
            data: self.data.read("TaskData")?.0,
            max_retries: self.max_retries.map(|cell| cell.read("MaxRetries")).transpose()?.map(|count| count.0),
            timeout_secs: self.timeout_secs.map(|cell| cell.read("Timeout")).transpose()?.map(|secs| secs.0),
            planned_on: match self.planned_on {
                Some(cell) => cell.read("PlannedOn")?,
                None => scheduled_on?,
            },
            due,
            // The handler gets nothing else of the metadata, so the task can run if that cannot be read.
            trace: self
                .meta
                .and_then(|cell| cell.read("Meta").ok())
                .map_or_else(Trace::default, |meta| Trace::of_meta(&meta.0)),
        })
    }
}
