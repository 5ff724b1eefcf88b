//! The first runs that may be claimed. What waits and may not, however much it is, costs a claim next to nothing: the first of
//! all are read in the order of the queue, and where those do not do, the first of each class that is taken.

use std::collections::HashMap;
use std::ops::Bound;

use diesel::prelude::*;
use diesel::result::QueryResult;

use crate::StoreResult;
use crate::backend::AnyConnection;
use crate::base::cells::ShownText;
use crate::base::schema::task_queue_runs::dsl::{
    claim_class, claim_order, id, task_queue_runs, waiting_order, waiting_tag,
};
use crate::rules::limits::Obstacles;
use taskqueue_domain::run::status::Stored;
use taskqueue_domain::task::class_set::ClassSet;
use taskqueue_domain::task::task_class::TaskClass;

/// Runs that are read in the order of the queue before classes are searched.
const READ_IN_ORDER: usize = 32;

/// Class, id and place in the order of a run that waits.
pub(in super::super) type Head = (Stored<TaskClass>, i64, i32);
type Row = (Option<ShownText>, i64, i32);

/// Who asks for the head of the queue from outside, and for which tasks.
#[derive(Clone, Copy)]
pub(in super::super) struct Asker<'a> {
    pub(super) claimant: &'a str,
    /// Only runs of tasks with this tag.
    pub(super) tag: Option<&'a str>,
}

/// The task of a run, where this claimant has rejected it or is held back from it. A value, not an EXISTS: planners would read
/// all rejections of the claimant first.
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
pub(super) use rejection_by;

/// The first run, by class, order and id, for which this holds.
macro_rules! first_where {
    ($conn:expr, $condition:expr, $asker:expr) => {{
        let waiting = task_queue_runs.filter($condition).order((claim_class, claim_order, id));
        let waiting = waiting.select((claim_class, id, claim_order));
        match $asker {
            None => waiting.first::<Row>($conn).optional(),
            Some(Asker { claimant, tag: None }) => {
                waiting.filter(rejection_by!(claimant).is_null()).first::<Row>($conn).optional()
            }
            Some(Asker { claimant, tag: Some(tag) }) => {
                let tagged = waiting.filter(rejection_by!(claimant).is_null()).filter(waiting_tag.eq(tag));
                // The whole index is named in the order, so that planners choose it.
                tagged.order((waiting_tag, claim_class, claim_order, id)).first::<Row>($conn).optional()
            }
        }
    }};
}

/// The first run of these classes that may be claimed now (rule R6).
pub(super) fn first_claimable(
    conn: &mut AnyConnection,
    classes: &ClassSet<'_>,
    asker: Option<Asker<'_>>,
    obstacles: &mut Obstacles<'_>,
) -> StoreResult<Option<Head>> {
    Ok(first_claimables(conn, classes, asker, 1, obstacles)?.into_iter().next())
}

/// The first `count` runs of these classes that may be claimed now (rule R6); of a class with limits as many as they leave room
/// for. One whose class cannot be read comes alone, as soon as a search meets it: it is set aside.
pub(super) fn first_claimables(
    conn: &mut AnyConnection,
    classes: &ClassSet<'_>,
    asker: Option<Asker<'_>>,
    count: usize,
    obstacles: &mut Obstacles<'_>,
) -> StoreResult<Vec<Head>> {
    match first_in_order(conn, classes, asker, count, obstacles)? {
        Some(heads) => Ok(heads),
        None => first_of_classes(conn, classes, asker, count, obstacles),
    }
}

/// `None` where more must be read than the first of all. Runs with a tag have no index of this order.
fn first_in_order(
    conn: &mut AnyConnection,
    classes: &ClassSet<'_>,
    asker: Option<Asker<'_>>,
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

/// Returns true if a run waits, of whatever class.
pub(super) fn is_any_waiting(conn: &mut AnyConnection) -> QueryResult<bool> {
    diesel::select(diesel::dsl::exists(task_queue_runs.filter(waiting_order.is_not_null()).select(id))).get_result(conn)
}

fn read_in_order(conn: &mut AnyConnection, asker: Option<Asker<'_>>, count: usize) -> QueryResult<Vec<Row>> {
    let waiting = task_queue_runs
        .filter(waiting_order.is_not_null())
        .order((waiting_order, id))
        .limit(as_limit(count))
        .select((claim_class, id, claim_order));
    match asker {
        None => waiting.load(conn),
        Some(Asker { claimant, .. }) => waiting.filter(rejection_by!(claimant).is_null()).load(conn),
    }
}

/// The first of each class, one index probe for each class that is taken and waits: rows of others, however many, are never
/// walked.
fn first_of_classes(
    conn: &mut AnyConnection,
    classes: &ClassSet<'_>,
    asker: Option<Asker<'_>>,
    count: usize,
    obstacles: &mut Obstacles<'_>,
) -> StoreResult<Vec<Head>> {
    let mut heads: Vec<Head> = Vec::new();
    let mut place = classes.seek(Bound::Unbounded);
    while let Some(from) = place {
        let Some(head) = next_head(conn, from.as_ref().map(String::as_str), asker)? else { break };
        // No search gets past a name that cannot be read.
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
    heads.sort_by_key(|(_, run_id, order)| (*order, *run_id));
    heads.truncate(count);
    Ok(heads)
}

/// The head of the first class from this place on. For a claimant, runs of other tags than it asks for, and of tasks that it has
/// rejected, are passed over.
pub(in super::super) fn next_head(
    conn: &mut AnyConnection,
    from: Bound<&str>,
    asker: Option<Asker<'_>>,
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
        .order((claim_class, claim_order, id))
        .limit(as_limit(count))
        .select((claim_class, id, claim_order));
    Ok(of_class.load::<Row>(conn)?.into_iter().filter_map(head_of).collect())
}

/// The head that a row describes; `None` where another claim took the run meanwhile.
pub(super) fn head_of((class, run_id, order): Row) -> Option<Head> {
    Some((Stored::from(class?.0), run_id, order))
}

fn as_limit(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
