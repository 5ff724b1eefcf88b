//! Finds the first runs that may be claimed. Waiting runs that may not be claimed cost a claim almost nothing, however many they
//! are. The first runs are read in queue order, and if that is not sufficient, the first of each accepted class.

use std::collections::HashMap;
use std::ops::Bound;

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::result::QueryResult;

use crate::StoreResult;
use crate::base::cells::{Cell, ShownText};
use crate::base::connection::AnyConnection;
use crate::base::schema::task_queue_runs::dsl::{
    claim_class, claim_order, id, lined_up_on, task_queue_runs, waiting_order, waiting_tag,
};
use crate::base::sql::SqlMoment;
use crate::rules::limits::Obstacles;
use taskqueue_domain::run::status::Stored;
use taskqueue_domain::task::choosing::class_set::ClassSet;
use taskqueue_domain::task::task_class::TaskClass;

/// Runs that are read in queue order before classes are scanned.
const READ_IN_ORDER: usize = 32;

/// Class and id of a waiting run, and its place in the line: ClaimOrder and LinedUpOn.
pub(crate) type Head = (Stored<TaskClass>, i64, i32, SqlMoment);
pub(crate) type HeadRow = (Option<ShownText>, i64, i32, Cell<SqlMoment>);

/// The claimant that asks for the head of the queue, and for which tasks.
#[derive(Clone, Copy)]
pub(crate) struct HeadFilter<'a> {
    pub(crate) claimant: &'a str,
    /// Only runs of tasks with this tag.
    pub(crate) tag: Option<&'a str>,
}

/// The task of a run, if this claimant has rejected it or it is held back from the claimant. A scalar subquery, because with
/// EXISTS, planners would read all rejections of the claimant first.
macro_rules! rejection_by {
    ($claimant:expr) => {{
        use crate::base::schema::{task_queue_rejections as rejections, task_queue_runs as runs};
        rejections::table
            .filter(rejections::task_id.eq(runs::task_queue_id))
            .filter(rejections::claimant.eq($claimant))
            .filter(
                rejections::held_until.is_null().or(rejections::held_until.gt(crate::base::sql::db_now().nullable())),
            )
            .select(rejections::task_id)
            .single_value()
    }};
}
pub(crate) use rejection_by;

/// Returns the first run, by class and place in the line, for which the condition holds.
macro_rules! first_where {
    ($conn:expr, $condition:expr, $asker:expr) => {{
        let waiting = task_queue_runs.filter($condition).order((claim_class, claim_order, lined_up_on, id));
        let waiting = waiting.select((claim_class, id, claim_order, lined_up_on));
        match $asker {
            None => waiting.first::<HeadRow>($conn).optional(),
            Some(HeadFilter { claimant, tag: None }) => {
                waiting.filter(rejection_by!(claimant).is_null()).first::<HeadRow>($conn).optional()
            }
            Some(HeadFilter { claimant, tag: Some(tag) }) => {
                let tagged = waiting.filter(rejection_by!(claimant).is_null()).filter(waiting_tag.eq(tag));
                // The order names all columns of the index, so that planners choose it.
                tagged
                    .order((waiting_tag, claim_class, claim_order, lined_up_on, id))
                    .first::<HeadRow>($conn)
                    .optional()
            }
        }
    }};
}

/// Returns the first run of these classes that may be claimed now (rule R6).
pub(crate) fn first_claimable(
    conn: &mut AnyConnection,
    classes: &ClassSet<'_>,
    asker: Option<HeadFilter<'_>>,
    obstacles: &mut Obstacles<'_>,
) -> StoreResult<Option<Head>> {
    Ok(first_claimables(conn, classes, asker, 1, obstacles)?.into_iter().next())
}

/// Returns the first `count` runs of these classes that may be claimed now (rule R6); for a class with limits, as many as the
/// limits allow. A run whose class cannot be read is returned alone, as soon as a scan reaches it: it is set aside.
pub(crate) fn first_claimables(
    conn: &mut AnyConnection,
    classes: &ClassSet<'_>,
    asker: Option<HeadFilter<'_>>,
    count: usize,
    obstacles: &mut Obstacles<'_>,
) -> StoreResult<Vec<Head>> {
    match first_in_order(conn, classes, asker, count, obstacles)? {
        Some(heads) => Ok(heads),
        None => first_of_classes(conn, classes, asker, count, obstacles),
    }
}

/// Returns `None` if more than the first runs must be read. Runs with a tag have no index of this order.
fn first_in_order(
    conn: &mut AnyConnection,
    classes: &ClassSet<'_>,
    asker: Option<HeadFilter<'_>>,
    count: usize,
    obstacles: &mut Obstacles<'_>,
) -> StoreResult<Option<Vec<Head>>> {
    if asker.is_some_and(|asker| asker.tag.is_some()) {
        return Ok(None);
    }
    let wanted = count.max(READ_IN_ORDER);
    let rows = read_in_order(conn, asker, wanted)?;
    let is_all = rows.len() < wanted;
    let (mut heads, mut room_of) = (Vec::new(), HashMap::<TaskClass, usize>::new());
    for head in rows.into_iter().filter_map(head_of) {
        let Stored::Known(class) = &head.0 else { return Ok(Some(vec![head])) };
        let room = match room_of.get_mut(class) {
            Some(room) => room,
            None => {
                let room = if classes.contains(class) { obstacles.room_for(conn, class, count)? } else { 0 };
                room_of.entry(class.clone()).or_insert(room)
            }
        };
        if *room > 0 {
            *room -= 1;
            heads.push(head);
        }
        if heads.len() == count {
            return Ok(Some(heads));
        }
    }
    Ok(is_all.then_some(heads))
}

/// Returns true if a run of any class is waiting. Asks for the first one: PostgreSQL may read the whole table to find out whether
/// one exists.
pub(crate) fn is_any_waiting(conn: &mut AnyConnection) -> QueryResult<bool> {
    let waiting = task_queue_runs.filter(waiting_order.is_not_null()).order(waiting_order).select(waiting_order);
    diesel::select(waiting.limit(1).single_value().is_not_null()).get_result(conn)
}

fn read_in_order(conn: &mut AnyConnection, asker: Option<HeadFilter<'_>>, count: usize) -> QueryResult<Vec<HeadRow>> {
    let waiting = task_queue_runs
        .filter(waiting_order.is_not_null())
        .order((waiting_order, lined_up_on, id))
        .limit(as_limit(count))
        .select((claim_class, id, claim_order, lined_up_on));
    match asker {
        None => waiting.load(conn),
        Some(HeadFilter { claimant, .. }) => waiting.filter(rejection_by!(claimant).is_null()).load(conn),
    }
}

/// Returns the first runs of each class, with one index probe for each accepted class with waiting runs: runs of other classes
/// are never scanned.
fn first_of_classes(
    conn: &mut AnyConnection,
    classes: &ClassSet<'_>,
    asker: Option<HeadFilter<'_>>,
    count: usize,
    obstacles: &mut Obstacles<'_>,
) -> StoreResult<Vec<Head>> {
    let mut heads: Vec<Head> = Vec::new();
    let mut place = classes.seek(Bound::Unbounded);
    while let Some(from) = place {
        let Some(head) = next_head(conn, from.as_ref().map(String::as_str), asker)? else { break };
        // A name that cannot be read stops the scan.
        let Stored::Known(class) = head.0.clone() else { return Ok(vec![head]) };
        if classes.contains(&class) {
            match obstacles.room_for(conn, &class, count)? {
                0 => {}
                1 => heads.push(head),
                room => heads.extend(heads_of_class(conn, &class, room)?),
            }
        }
        place = obstacles.place_after(&class).and_then(|after| classes.seek(after));
    }
    heads.sort_by_key(|(_, run_id, order, on)| (*order, *on, *run_id));
    heads.truncate(count);
    Ok(heads)
}

/// Returns the head of the first class from this position on. For a claimant, skips runs without the requested tag, and runs of
/// tasks that it has rejected.
pub(crate) fn next_head(
    conn: &mut AnyConnection,
    from: Bound<&str>,
    asker: Option<HeadFilter<'_>>,
) -> QueryResult<Option<Head>> {
    let row = match from {
        Bound::Included(from) => first_where!(conn, claim_class.ge(from), asker)?,
        Bound::Excluded(from) => first_where!(conn, claim_class.gt(from), asker)?,
        Bound::Unbounded => first_where!(conn, claim_class.is_not_null(), asker)?,
    };
    Ok(row.and_then(head_of))
}

fn heads_of_class(conn: &mut AnyConnection, class: &TaskClass, count: usize) -> QueryResult<Vec<Head>> {
    let of_class = task_queue_runs
        .filter(claim_class.eq(class.as_str()))
        .order((claim_class, claim_order, lined_up_on, id))
        .limit(as_limit(count))
        .select((claim_class, id, claim_order, lined_up_on));
    Ok(of_class.load::<HeadRow>(conn)?.into_iter().filter_map(head_of).collect())
}

/// Returns the head in a row; `None` if another claim took the run meanwhile.
pub(crate) fn head_of((class, run_id, order, on): HeadRow) -> Option<Head> {
    // Where it stands in the index, too, if it is text that is no time.
    let on = on.read("LinedUpOn").unwrap_or_else(|_| DateTime::<Utc>::MAX_UTC.into());
    Some((Stored::from(class?.0), run_id, order, on))
}

fn as_limit(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
