//! Adds to the metadata of a task: at the end of an attempt, and by an edit.

use diesel::prelude::*;

use crate::StoreResult;
use crate::base::cells::ShownText;
use crate::base::connection::AnyConnection;
use crate::base::schema::task_queue::dsl;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::meta::{MAX_META_BYTES, Meta};

/// Adds these values by name. The transaction must have written the row, so that no other transaction does meanwhile. Returns
/// `false` if the metadata would become too large or cannot be read; it is then unchanged.
pub(super) fn extend_meta(conn: &mut AnyConnection, id: TaskId, later: &Meta) -> StoreResult<bool> {
    let this_task = || dsl::task_queue.filter(dsl::id.eq(id.0));
    let found: Option<Option<ShownText>> = this_task().select(dsl::meta).first(conn).optional()?;
    let Ok(mut meta) = found.flatten().map_or(Ok(Meta::default()), |text| Meta::parse(&text.0)) else {
        return Ok(false);
    };
    meta.merge(later.clone());
    let meta = meta.without_nulls();
    let text = (!meta.is_empty()).then(|| meta.to_string());
    if text.as_ref().is_some_and(|text| text.len() > MAX_META_BYTES) {
        return Ok(false);
    }
    diesel::update(this_task()).set(dsl::meta.eq(text)).execute(conn)?;
    Ok(true)
}
