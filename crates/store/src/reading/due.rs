//! The due tasks for `status`: how many wait, and for how long the first one has been waiting.

use chrono::{DateTime, Utc};
use diesel::prelude::*;

use crate::base::cells::ShownText;
use crate::base::connection::AnyConnection;
use crate::base::counted::{COUNT_LIMIT, Counted, count_up_to};
use crate::base::schema::task_queue::dsl::{due_on, id, task_class, task_queue};
use crate::base::sql::{SqlMoment, db_now};
use crate::base::unmarked::{AllUnmarked, open_run};
use crate::{Store, StoreResult};

/// How many of the first due tasks of all classes are read to count those of one class.
const MOST_READ: i64 = 50_000;

impl Store {
    /// Returns for how many seconds the first due task that is not being processed has been waiting; `None` if there is none.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn oldest_due_secs(&mut self) -> StoreResult<Option<i64>> {
        self.read(|conn| {
            let now = now(conn)?;
            Ok(first_due_on(conn, now)?.map(|first| secs_between(first, now)))
        })
    }
}

/// Counts the due tasks that are not being processed, and returns for how many seconds the first one has been waiting.
pub(super) fn count_due(conn: &mut AnyConnection) -> StoreResult<(Counted, Option<i64>)> {
    let now = now(conn)?;
    let due = task_queue.filter(due_on.le(now));
    let count = count_up_to!(COUNT_LIMIT, due.select(id), conn)?;
    let first = first_due_on(conn, now)?;
    // After the count: if a run ends in between, too few are subtracted, and waiting tasks are never missed.
    let in_process = AllUnmarked::load(conn, None)?.count();
    Ok((count.without(in_process), first.map(|first| secs_between(first, now))))
}

/// The same for a class. Reads the first due tasks of all classes: by its class, a database would read all tasks of the class,
/// due or not.
pub(super) fn count_due_of_class(conn: &mut AnyConnection, class: &str) -> StoreResult<(Counted, Option<i64>)> {
    let now = now(conn)?;
    let first = task_queue.filter(due_on.le(now)).order((due_on, id)).limit(MOST_READ + 1);
    let due: Vec<(ShownText, i64, Option<SqlMoment>)> = first.select((task_class, id, due_on)).load(conn)?;
    let all = Counted::up_to(MOST_READ, i64::try_from(due.len()).unwrap_or(i64::MAX));
    let in_process = AllUnmarked::load(conn, Some(class))?.ids();
    let waiting = due.into_iter().filter(|(of_class, task, _)| of_class.0 == class && !in_process.contains(task));
    let waiting: Vec<Option<SqlMoment>> = waiting.map(|(.., due)| due).collect();
    let count = Counted::up_to(COUNT_LIMIT, i64::try_from(waiting.len()).unwrap_or(i64::MAX));
    let first = waiting.into_iter().flatten().next();
    Ok((Counted { or_more: count.or_more || all.or_more, ..count }, first.map(|first| secs_between(first, now))))
}

/// Returns since when the first due task that is not being processed has been waiting.
pub(super) fn first_due_on(conn: &mut AnyConnection, now: SqlMoment) -> QueryResult<Option<SqlMoment>> {
    let waiting = task_queue.filter(due_on.le(now)).filter(open_run().is_null());
    let first: Option<Option<SqlMoment>> = waiting.order((due_on, id)).select(due_on).first(conn).optional()?;
    Ok(first.flatten())
}

fn now(conn: &mut AnyConnection) -> QueryResult<SqlMoment> {
    diesel::select(db_now()).get_result(conn)
}

fn secs_between(first: SqlMoment, now: SqlMoment) -> i64 {
    let (now, first): (DateTime<Utc>, DateTime<Utc>) = (now.into(), first.into());
    (now - first).num_seconds().max(0)
}
