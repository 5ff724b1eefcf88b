//! Stores how long tasks and their results are kept, so that `prune` finds them through an index. The retention of a class is
//! stored in a task whose attempt has ended, the retention of results in their run. The configuration of the process that ends
//! the attempt applies, as for the backoff: a later change of the class does not affect finished tasks.

use std::collections::BTreeMap;

use diesel::prelude::*;

use crate::StoreResult;
use crate::base::cells::ShownText;
use crate::base::connection::AnyConnection;
use crate::base::schema::{task_queue, task_queue_runs};
use taskqueue_domain::run::retention::KeepOfClass;
use taskqueue_domain::task::ids::TaskId;

/// Ids in one statement.
const IDS_PER_STATEMENT: usize = 1_000;

/// Stores the retention of their classes in these tasks, of which an attempt has ended or that were cancelled.
pub(crate) fn keep_as_classes_state(
    conn: &mut AnyConnection,
    keep_of: Option<&KeepOfClass>,
    tasks: &[i64],
) -> StoreResult<()> {
    use task_queue::dsl;
    let Some(keep_of) = keep_of else { return Ok(()) };
    let mut changed: BTreeMap<Option<i32>, Vec<i64>> = BTreeMap::new();
    for part in tasks.chunks(IDS_PER_STATEMENT) {
        let named = dsl::task_queue.filter(dsl::id.eq_any(part));
        let rows: Vec<(i64, ShownText, Option<i32>)> =
            named.select((dsl::id, dsl::task_class, dsl::class_keep_secs)).load(conn)?;
        for (id, class, written) in rows {
            let stated = keep_of(&class.0).task_secs;
            if stated != written {
                changed.entry(stated).or_default().push(id);
            }
        }
    }
    for (secs, ids) in changed {
        diesel::update(dsl::task_queue.filter(dsl::id.eq_any(ids))).set(dsl::class_keep_secs.eq(secs)).execute(conn)?;
    }
    Ok(())
}

/// Stores in these ended runs how long their results are kept, as stated by their tasks or else their classes.
pub(in crate::transitions) fn keep_results_as_stated(
    conn: &mut AnyConnection,
    keep_of: Option<&KeepOfClass>,
    runs: &[i64],
) -> StoreResult<()> {
    use task_queue_runs::dsl;
    let mut stated: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
    for part in runs.chunks(IDS_PER_STATEMENT) {
        let rows: Vec<(i64, ShownText, Option<i32>)> = dsl::task_queue_runs
            .inner_join(task_queue::table.on(task_queue::id.eq(dsl::task_queue_id)))
            .filter(dsl::id.eq_any(part))
            .select((dsl::id, task_queue::task_class, task_queue::keep_results_secs))
            .load(conn)?;
        for (id, class, own) in rows {
            let secs = own.or_else(|| keep_of.and_then(|keep_of| keep_of(&class.0).results_secs));
            if let Some(secs) = secs {
                stated.entry(secs).or_default().push(id);
            }
        }
    }
    for (secs, ids) in stated {
        diesel::update(dsl::task_queue_runs.filter(dsl::id.eq_any(ids)))
            .set(dsl::keep_results_secs.eq(secs))
            .execute(conn)?;
    }
    Ok(())
}

/// Sets how many seconds the results of all runs of a task are kept; `None` uses the setting.
pub(in crate::transitions) fn keep_results_of(
    conn: &mut AnyConnection,
    id: TaskId,
    secs: Option<i32>,
) -> StoreResult<()> {
    use task_queue_runs::dsl;
    diesel::update(dsl::task_queue_runs.filter(dsl::task_queue_id.eq(id.0)))
        .set(dsl::keep_results_secs.eq(secs))
        .execute(conn)?;
    Ok(())
}
