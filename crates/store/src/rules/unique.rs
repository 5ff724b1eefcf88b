//! Keys of unique tasks: the holder of a key, and concurrent writes of the same key.

use diesel::prelude::*;

use crate::base::cells::ShownText;
use crate::base::connection::AnyConnection;
use crate::base::schema::task_queue::dsl;
use crate::base::sql::{SqlMoment, db_now};
use crate::session::key_race::repeat_if_key_is_taken;
use crate::{Store, StoreResult};
use taskqueue_domain::task::ids::TaskId;

/// The live task that has a key, or the last one that had it within a window that has not expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The task.
    pub id: TaskId,
    /// The key.
    pub key: String,
    /// LastStatus
    pub status: String,
    /// Whether it belongs to a schedule, so that other tasks follow it.
    pub recurs: bool,
}

/// Returns the holder of a key of a class. Removes its window if it has expired.
pub(crate) fn find_holder(conn: &mut AnyConnection, class: &str, key: &str) -> StoreResult<Option<Holder>> {
    let of_key = || dsl::task_queue.filter(dsl::task_class.eq(class)).filter(dsl::live_unique_key.eq(key));
    let over = dsl::unique_until.le(db_now().nullable());
    let ended: Option<i64> = of_key().filter(over).select(dsl::id).first(conn).optional()?;
    if let Some(id) = ended {
        diesel::update(dsl::task_queue.filter(dsl::id.eq(id)).filter(over))
            .set(dsl::unique_until.eq(None::<SqlMoment>))
            .execute(conn)?;
    }
    let found: Option<(i64, ShownText, Option<ShownText>)> =
        of_key().select((dsl::id, dsl::last_status, dsl::schedule_head)).first(conn).optional()?;
    Ok(found.map(|(id, status, schedule_head)| Holder {
        id: TaskId(id),
        key: key.to_owned(),
        status: status.0,
        recurs: schedule_head.is_some(),
    }))
}

/// Returns another task that holds the key of this one, which has one of these statuses and would become live again: the other
/// one wins.
pub(crate) fn find_other_holder(
    conn: &mut AnyConnection,
    task_id: TaskId,
    statuses: &[&str],
) -> StoreResult<Option<Holder>> {
    let own: Option<(ShownText, Option<ShownText>)> = dsl::task_queue
        .filter(dsl::id.eq(task_id.0))
        .filter(dsl::last_status.eq_any(statuses))
        .select((dsl::task_class, dsl::unique_key))
        .first(conn)
        .optional()?;
    let Some((class, Some(key))) = own else { return Ok(None) };
    Ok(find_holder(conn, &class.0, &key.0)?.filter(|holder| holder.id != task_id))
}

impl Store {
    /// Returns the task that has this key of a class, if any. Changes nothing: an expired window counts until another operation
    /// removes it.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn find_key_holder(&mut self, class: &str, key: &str) -> StoreResult<Option<TaskId>> {
        let found: Option<i64> = self.read(|conn| {
            let of_key = dsl::task_queue.filter(dsl::task_class.eq(class)).filter(dsl::live_unique_key.eq(key));
            Ok(of_key.select(dsl::id).first(conn).optional()?)
        })?;
        Ok(found.map(TaskId))
    }

    /// Same as [`Store::write`], for a write that makes a task with a key live. If another transaction takes the key between the
    /// check and the write, the write is repeated. Callers do not get the error of the violated index.
    pub(crate) fn write_key<T>(
        &mut self,
        mut work: impl FnMut(&mut AnyConnection) -> StoreResult<T>,
    ) -> StoreResult<T> {
        repeat_if_key_is_taken(|| self.write(&mut work))
    }

    /// Same as [`Store::write_key`], based on [`Store::write_once`].
    pub(crate) fn write_key_once<T: Clone>(
        &mut self,
        mut work: impl FnMut(&mut AnyConnection) -> StoreResult<T>,
    ) -> StoreResult<T> {
        repeat_if_key_is_taken(|| self.write_once(&mut work))
    }
}
