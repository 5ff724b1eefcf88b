//! When runs started: read by their ids. No index has the time of a start, since every run would pay for it.

use std::ops::Range;

use chrono::{DateTime, Utc};
use diesel::prelude::*;

use crate::base::cells::Cell;
use crate::base::schema::task_queue_runs::dsl;
use crate::base::sql::SqlMoment;
use crate::{Store, StoreResult};

/// What a chart of starts needs of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunStart {
    /// When the run was created.
    pub created_on: DateTime<Utc>,
    /// When it started, if it has.
    pub started_on: Option<DateTime<Utc>>,
    /// True if it has not started and may still do so.
    pub is_waiting: bool,
}

impl Store {
    /// Returns the starts of the runs with these ids. Leaves out runs with times that cannot be read.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_starts(&mut self, ids: Range<i64>) -> StoreResult<Vec<RunStart>> {
        type Row = (Cell<SqlMoment>, Option<Cell<SqlMoment>>, bool);
        let rows: Vec<Row> = self.read(|conn| {
            Ok(dsl::task_queue_runs
                .filter(dsl::id.ge(ids.start))
                .filter(dsl::id.lt(ids.end))
                .select((dsl::created_on, dsl::started_on, dsl::finished_on.is_null()))
                .load(conn)?)
        })?;
        let start = |(created, started, is_open): Row| {
            let is_waiting = is_open && started.is_none();
            let started_on = started.map(|on| on.read("StartedOn")).transpose().ok()?.map(Into::into);
            Some(RunStart { created_on: created.read("CreatedOn").ok()?.into(), started_on, is_waiting })
        };
        Ok(rows.into_iter().filter_map(start).collect())
    }

    /// Returns the greatest id of a run below this one.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn last_run_below(&mut self, run_id: i64) -> StoreResult<Option<i64>> {
        let last = dsl::task_queue_runs.filter(dsl::id.lt(run_id)).order(dsl::id.desc()).select(dsl::id);
        self.read(|conn| Ok(last.first(conn).optional()?))
    }

    /// Returns the least id of a run from this one on.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn first_run_from(&mut self, run_id: i64) -> StoreResult<Option<i64>> {
        let first = dsl::task_queue_runs.filter(dsl::id.ge(run_id)).order(dsl::id).select(dsl::id);
        self.read(|conn| Ok(first.first(conn).optional()?))
    }
}
