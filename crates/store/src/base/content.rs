//! What a handler needs of a task: read in one place, whichever statement has claimed it.

use diesel::prelude::*;
use diesel::sql_types::{Integer, Nullable, Text, Timestamp};

use super::cells::{Cell, ExactInt, ExactText};
use super::sql::Moment;
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_domain::text::unreadable::{StoredText, Unreadable};

/// As the rows of the task and of its run hold it.
#[derive(Clone, Debug, Queryable, QueryableByName)]
pub(crate) struct ContentRow {
    #[diesel(sql_type = Text)]
    pub(crate) class: Cell<ExactText>,
    #[diesel(sql_type = Text)]
    pub(crate) data: Cell<ExactText>,
    #[diesel(sql_type = Nullable<Integer>)]
    pub(crate) max_retries: Option<Cell<ExactInt>>,
    #[diesel(sql_type = Nullable<Integer>)]
    pub(crate) timeout_secs: Option<Cell<ExactInt>>,
    /// Chosen from here on by [`ContentRow::read`]: COALESCE of MariaDB takes a date of zeros, which cannot be read, for NULL.
    #[diesel(sql_type = Nullable<Timestamp>)]
    pub(crate) planned_on: Option<Cell<Moment>>,
    #[diesel(sql_type = Timestamp)]
    pub(crate) scheduled_on: Cell<Moment>,
}

/// The same, once it has been read.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    pub(crate) class: TaskClass,
    pub(crate) data: String,
    pub(crate) max_retries: Option<i32>,
    pub(crate) timeout_secs: Option<i32>,
    pub(crate) planned_on: Moment,
}

impl ContentRow {
    /// Reads all of it.
    ///
    /// # Errors
    /// The first column that cannot be read: nothing of such a row reaches a handler.
    pub(crate) fn read(self) -> Result<Content, Unreadable> {
        let class = self.class.read("TaskClass")?.0;
        let bad_name = |_| Unreadable::of_text("TaskClass", StoredText::from(class.as_bytes()));
        Ok(Content {
            class: class.parse().map_err(bad_name)?,
            data: self.data.read("TaskData")?.0,
            max_retries: self.max_retries.map(|cell| cell.read("MaxRetries")).transpose()?.map(|count| count.0),
            timeout_secs: self.timeout_secs.map(|cell| cell.read("Timeout")).transpose()?.map(|secs| secs.0),
            planned_on: match self.planned_on {
                Some(cell) => cell.read("PlannedOn")?,
                None => self.scheduled_on.read("ScheduledOn")?,
            },
        })
    }
}
