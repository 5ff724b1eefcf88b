//! Pages of tasks that are over, in the order of `StatusOn`. There can be millions, and no index has those of a status in the order
//! of their ids. On SQLite, tasks of the same instant that SQL has written with different numbers of digits can be left out where a
//! page ends between them.

use chrono::{DateTime, Utc};
use diesel::prelude::*;

use crate::StoreResult;
use crate::base::connection::AnyConnection;
use crate::base::schema::task_queue::dsl;
use crate::base::sql::{SqlMoment, any_year, shortest};
use crate::reading::status::PARTS;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::choosing::selection::{PagePlace, PageStart};
use taskqueue_domain::task::ids::TaskId;

/// A row's place in the order.
type Place = (Option<SqlMoment>, i64);

/// Returns a page of the tasks with these statuses, after this time and id in the order of the page.
pub(crate) fn load_ended(
    statuses: &[TaskStatus],
    (on, id): (DateTime<Utc>, TaskId),
    start: PageStart,
    limit: i64,
    conn: &mut AnyConnection,
) -> StoreResult<Vec<PagePlace>> {
    let on = SqlMoment::from(on).max(SqlMoment::beginning());
    let mut found: Vec<Place> = Vec::new();
    for status in statuses {
        for part in PARTS {
            let query = dsl::task_queue.filter(dsl::last_status.eq(status.as_str())).filter(dsl::finished.eq(part));
            let query = query.select((dsl::status_on, dsl::id)).limit(limit);
            // The first condition determines where the scan of the index begins. The order names all columns of the index.
            let (least, greatest) = (shortest(on).nullable(), any_year(on).nullable());
            found.extend(match start {
                PageStart::Before(_) => query
                    .filter(dsl::status_on.le(greatest))
                    .filter(dsl::status_on.lt(least).or(dsl::id.lt(id.0)))
                    .order((dsl::last_status.desc(), dsl::finished.desc(), dsl::status_on.desc(), dsl::id.desc()))
                    .load::<Place>(conn)?,
                PageStart::After(_) => query
                    .filter(dsl::status_on.ge(least))
                    .filter(dsl::status_on.gt(greatest).or(dsl::id.gt(id.0)))
                    .order((dsl::last_status, dsl::finished, dsl::status_on, dsl::id))
                    .load::<Place>(conn)?,
            });
        }
    }
    found.sort_unstable();
    found.dedup();
    if matches!(start, PageStart::Before(_)) {
        found.reverse();
    }
    found.truncate(length_of(limit));
    Ok(found.into_iter().map(|(on, id)| PagePlace { id: TaskId(id), over_on: on.map(DateTime::from) }).collect())
}

/// Returns a limit as a length.
pub(crate) fn length_of(limit: i64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}
