//! Pages of tasks that have ended, in the order of their ends. There can be millions, and no index has those of a status in the
//! order of their ids.

use diesel::prelude::*;

use crate::base::connection::AnyConnection;
use crate::base::schema::task_queue;
use crate::base::schema::task_queue::dsl;
use crate::base::sql::SqlMoment;
use crate::reading::selections::{IdPage, shown};
use crate::reading::status::PARTS;
use crate::{StoreError, StoreResult};
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::selection::PageStart;

diesel::alias!(task_queue as last_shown: LastShown);

/// A row's place in the order.
type Place = (Option<SqlMoment>, i64);

/// Returns the ids of a page of the tasks with these statuses.
pub(crate) fn load_ended(statuses: &[TaskStatus], page: IdPage, conn: &mut AnyConnection) -> StoreResult<Vec<i64>> {
    let last = known_task(page.start, conn)?;
    let mut found: Vec<Place> = Vec::new();
    for status in statuses {
        for part in PARTS {
            found.extend(load_part(*status, part, last, page, conn)?);
        }
    }
    found.sort_unstable();
    found.dedup();
    if matches!(page.start, PageStart::Before(_)) {
        found.reverse();
    }
    found.truncate(shown(page.limit));
    Ok(found.into_iter().map(|(_, id)| id).collect())
}

/// Returns the task after which the page begins, `None` if it is the first page. Without that task, its place is not known.
fn known_task(start: PageStart, conn: &mut AnyConnection) -> StoreResult<Option<i64>> {
    let (PageStart::Before(TaskId(id)) | PageStart::After(TaskId(id))) = start;
    if id <= 0 || id == i64::MAX {
        return Ok(None);
    }
    let known: Option<i64> = dsl::task_queue.filter(dsl::id.eq(id)).select(dsl::id).first(conn).optional()?;
    known.map(Some).ok_or_else(|| StoreError::NotFound(format!("task {id}")))
}

fn load_part(
    status: TaskStatus,
    part: i32,
    last: Option<i64>,
    page: IdPage,
    conn: &mut AnyConnection,
) -> StoreResult<Vec<Place>> {
    let query = dsl::task_queue.filter(dsl::last_status.eq(status.as_str())).filter(dsl::finished.eq(part));
    let mut query = query.select((dsl::status_on, dsl::id)).limit(page.limit).into_boxed();
    // Compared as stored: a time that SQL has written can have fewer digits than the same time here. The first condition
    // determines where the scan of the index begins.
    let status_on = |last: i64| {
        let of_last = last_shown.filter(last_shown.field(dsl::id).eq(last));
        of_last.select(last_shown.field(dsl::status_on)).single_value()
    };
    Ok(match page.start {
        PageStart::Before(_) => {
            if let Some(last) = last {
                query = query
                    .filter(dsl::status_on.le(status_on(last)))
                    .filter(dsl::status_on.lt(status_on(last)).or(dsl::id.lt(last)));
            }
            query
                .order((dsl::last_status.desc(), dsl::finished.desc(), dsl::status_on.desc(), dsl::id.desc()))
                .load(conn)?
        }
        PageStart::After(_) => {
            if let Some(last) = last {
                query = query
                    .filter(dsl::status_on.ge(status_on(last)))
                    .filter(dsl::status_on.gt(status_on(last)).or(dsl::id.gt(last)));
            }
            query.order((dsl::last_status, dsl::finished, dsl::status_on, dsl::id)).load(conn)?
        }
    })
}
