//! A claimant that gives a run back because it cannot or will not do it is remembered: it is never offered the task again.

use diesel::dsl::exists;
use diesel::prelude::*;

use super::super::StoreResult;
use super::super::backend::AnyConnection;
use super::super::schema::{task_queue_rejections, task_queue_runs};
use crate::domain::ids::RunId;

/// A task has at most one open run, so that nobody else remembers the same at the same moment.
pub(super) fn remember_rejection(conn: &mut AnyConnection, run_id: RunId) -> StoreResult<()> {
    use task_queue_rejections::dsl;
    let (task_id, claimant): (i64, Option<String>) = task_queue_runs::table
        .filter(task_queue_runs::id.eq(run_id.0))
        .select((task_queue_runs::task_queue_id, task_queue_runs::claimant))
        .first(conn)?;
    let Some(claimant) = claimant else { return Ok(()) };
    let same = dsl::task_queue_rejections.filter(dsl::task_id.eq(task_id)).filter(dsl::claimant.eq(&claimant));
    // A claimant that takes runs by SQL may be offered what it has rejected.
    let is_known: bool = diesel::select(exists(same)).get_result(conn)?;
    if !is_known {
        diesel::insert_into(dsl::task_queue_rejections)
            .values((dsl::task_id.eq(task_id), dsl::claimant.eq(&claimant)))
            .execute(conn)?;
    }
    fault_point!("end.rejection_remembered");
    Ok(())
}
