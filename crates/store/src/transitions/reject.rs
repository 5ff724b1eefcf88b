//! A claimant that rejects a task is never offered it again. A task is held back temporarily from a claimant whose claim expired,
//! so that others get it first. After several expired claims, the claimant counts as having rejected it (source 000).

use diesel::prelude::*;

use crate::StoreResult;
use crate::base::cells::ShownText;
use crate::base::connection::AnyConnection;
use crate::base::schema::task_queue_rejections::dsl;
use crate::base::schema::task_queue_runs;
use crate::base::sql::{SqlMoment, db_now, db_now_plus};
use crate::transitions::ending::run_end::Lateness;
use taskqueue_domain::task::ids::RunId;

/// Records a rejection. A task has at most one open run, so no other transaction records the same rejection at the same time.
pub(crate) fn remember_rejection(conn: &mut AnyConnection, run_id: RunId) -> StoreResult<()> {
    let Some((task_id, claimant)) = held_by(conn, run_id)? else { return Ok(()) };
    // A claimant from which the task is held back may have claimed it with its own SQL.
    if timeouts_of(conn, task_id, &claimant)?.is_none() {
        insert(conn, task_id, &claimant)?;
    }
    reject(conn, task_id, &claimant)?;
    fault_point!("end.rejection_remembered");
    Ok(())
}

/// Called after the run of a claimant whose claim expired.
pub(crate) fn hold_back(conn: &mut AnyConnection, run_id: RunId, lateness: Lateness) -> StoreResult<()> {
    let Some((task_id, claimant)) = held_by(conn, run_id)? else { return Ok(()) };
    let known = timeouts_of(conn, task_id, &claimant)?;
    if known.is_none() {
        insert(conn, task_id, &claimant)?;
    }
    let (timeouts, is_rejected) = known.unwrap_or((0, false));
    let timeouts = timeouts.saturating_add(1);
    diesel::update(row_of(task_id, &claimant)).set(dsl::timeouts.eq(timeouts)).execute(conn)?;
    if timeouts >= lateness.limit {
        return reject(conn, task_id, &claimant);
    }
    if !is_rejected {
        let until = db_now_plus(lateness.hold_secs).nullable();
        diesel::update(row_of(task_id, &claimant)).set(dsl::held_until.eq(until)).execute(conn)?;
    }
    Ok(())
}

/// Returns the task of a run, and the claimant that had it.
fn held_by(conn: &mut AnyConnection, run_id: RunId) -> StoreResult<Option<(i64, String)>> {
    let (task_id, claimant): (i64, Option<ShownText>) = task_queue_runs::table
        .filter(task_queue_runs::id.eq(run_id.0))
        .select((task_queue_runs::task_queue_id, task_queue_runs::claimant))
        .first(conn)?;
    Ok(claimant.map(|claimant| (task_id, claimant.0)))
}

/// Returns how many claims of the claimant expired, and whether it has rejected the task.
fn timeouts_of(conn: &mut AnyConnection, task_id: i64, claimant: &str) -> StoreResult<Option<(i32, bool)>> {
    Ok(row_of(task_id, claimant).select((dsl::timeouts, dsl::held_until.is_null())).first(conn).optional()?)
}

fn insert(conn: &mut AnyConnection, task_id: i64, claimant: &str) -> StoreResult<()> {
    let row = (dsl::task_id.eq(task_id), dsl::claimant.eq(claimant));
    diesel::insert_into(dsl::task_queue_rejections).values(row).execute(conn)?;
    Ok(())
}

fn reject(conn: &mut AnyConnection, task_id: i64, claimant: &str) -> StoreResult<()> {
    diesel::update(row_of(task_id, claimant))
        .set((dsl::held_until.eq(None::<SqlMoment>), dsl::rejected_on.eq(db_now())))
        .execute(conn)?;
    Ok(())
}

#[diesel::dsl::auto_type(no_type_alias)]
fn row_of<'a>(task_id: i64, claimant: &'a str) -> _ {
    dsl::task_queue_rejections.filter(dsl::task_id.eq(task_id)).filter(dsl::claimant.eq(claimant))
}
