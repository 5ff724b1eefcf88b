//! Every change of a status, as compare-and-set: a write states the status (and token) from which it starts and must affect one
//! row. Task and run change in one transaction (rule R4). The domain crate defines which changes are possible.

mod cancel;
pub(crate) mod claiming;
mod configure;
mod create;
mod edit;
pub(crate) mod ending;
mod expire;
mod meta;
mod overlap;
mod recur;
pub(crate) mod reject;
mod replace;
mod retry;
mod schedule;

pub use self::cancel::{CancelAnswer, RunRequest};
pub use self::configure::WantedSchedule;
pub use self::edit::EditAnswer;
pub(super) use self::ending::keep::keep_as_classes_state;
pub use self::ending::run_end::{Crash, EndCondition, EndResult, Lateness, Loss, RunEnd};
pub use self::recur::Advanced;
pub(super) use self::replace::{Replacer, replace_task};
pub use self::retry::{NewStart, RestartAnswer};
pub(super) use self::schedule::skips_times;
pub use self::schedule::{ScheduleAnswer, ScheduleChange};
pub use crate::transitions::claiming::choose::OutsideClaim;
pub use crate::transitions::claiming::claim::{Claim, SpecificClaim};
pub use crate::transitions::claiming::claim_many::{ManyClaimed, NextWork};
pub use crate::transitions::claiming::outside_claim::OutsideRun;

use diesel::prelude::*;

use crate::StoreResult;
use crate::backend;
use crate::base::connection::AnyConnection;
use crate::base::schema::task_queue_runs;
use crate::base::sql::db_now;
use taskqueue_domain::task::ids::TaskId;

/// Must come first in a transaction that changes these tasks or their runs. For several tasks, it takes the lock `create-runs`,
/// because `create-runs` also locks the rows of many tasks, in another order.
fn enter_tasks(conn: &mut AnyConnection, ids: &[TaskId]) -> StoreResult<()> {
    if ids.len() > 1 {
        backend::lock_gate(conn, "create-runs")?;
    }
    Ok(backend::enter_both_tables(conn)?)
}

/// Locks the row of a task, and returns true if the task has no open run. Reads the runs after locking: a batch start changes no
/// task row, but skips locked rows.
fn hold_idle(conn: &mut AnyConnection, id: TaskId) -> StoreResult<bool> {
    backend::lock_tasks(conn, &[id.0])?;
    let open = task_queue_runs::table.filter(task_queue_runs::open_task_id.eq(id.0));
    let is_open: bool = diesel::select(diesel::dsl::exists(open)).get_result(conn)?;
    Ok(!is_open)
}

/// Excludes claims. A claim has the lock of TaskQueueRuns and then locks task rows. A transaction that locks a task row first
/// must therefore write to TaskQueueRuns before, even if no row matches.
pub(super) fn keep_claims_out(conn: &mut AnyConnection) -> StoreResult<()> {
    use task_queue_runs::dsl;
    diesel::update(dsl::task_queue_runs.filter(dsl::id.eq(0))).set(dsl::updated_on.eq(db_now())).execute(conn)?;
    Ok(())
}
