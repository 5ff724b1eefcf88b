//! Adds to the metadata of a task: at the end of an attempt, and by an edit.

use diesel::prelude::*;

use crate::StoreResult;
use crate::base::cells::MaybeShownText;
use crate::base::connection::AnyConnection;
use crate::base::schema::task_queue::dsl;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::meta::{MAX_META_BYTES, Meta};

/// Adds these values by name. The transaction must have written the row, so that no other transaction does meanwhile. Returns
/// `false` if the metadata would become too large or cannot be read; it is then unchanged.
pub(super) fn extend_meta(conn: &mut AnyConnection, id: TaskId, later: &Meta) -> StoreResult<bool> {
    let Some(text) = extended_meta(conn, id, later)? else { return Ok(false) };
    diesel::update(dsl::task_queue.filter(dsl::id.eq(id.0))).set(dsl::meta.eq(text)).execute(conn)?;
    Ok(true)
}

/// Returns the metadata with these values added, as it is stored; `None` if it would become too large or cannot be read.
pub(super) fn extended_meta(conn: &mut AnyConnection, id: TaskId, later: &Meta) -> StoreResult<Option<Option<String>>> {
    let this_task = dsl::task_queue.filter(dsl::id.eq(id.0));
    let found: Option<StoredMeta> = this_task.select(StoredMeta::as_select()).first(conn).optional()?;
    let stored = found.and_then(|row| row.meta);
    let Ok(mut meta) = stored.as_deref().map_or(Ok(Meta::default()), Meta::parse) else { return Ok(None) };
    meta.merge(later.clone());
    let meta = meta.without_nulls();
    let text = (!meta.is_empty()).then(|| meta.to_string());
    Ok(Some(text).filter(|text| text.as_ref().is_none_or(|text| text.len() <= MAX_META_BYTES)))
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = crate::base::schema::task_queue)]
struct StoredMeta {
    #[diesel(deserialize_as = MaybeShownText)]
    meta: Option<String>,
}
