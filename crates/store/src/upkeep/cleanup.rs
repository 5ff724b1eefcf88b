//! Checks with one statement what has to be cleaned up. Most calls of `create-runs` find nothing, and a query for each kind of
//! rows would be half of their cost.

use diesel::dsl::{exists, min, not};
use diesel::prelude::*;
use diesel::sql_types::Bool;

use crate::base::connection::AnyConnection;
use crate::base::schema::{
    task_queue, task_queue_events, task_queue_notices, task_queue_pauses, task_queue_receipts, task_queue_run_outputs,
    task_queue_runners, task_queue_runs,
};
use crate::base::sql::{SqlMoment, any_year};
use crate::reading::schedules as reading_schedules;
use crate::reading::status::FINISHED;
use crate::session::receipts::KEPT_SECS as RECEIPTS_KEPT_SECS;
use crate::transitions::ending::awaited_ends::missed_ends;
use crate::{Store, StoreResult};
use taskqueue_domain::run::retention::{Keep, Retention};
use taskqueue_domain::run::status::TaskStatus;

diesel::alias!(task_queue_run_outputs as all_outputs: AllOutputs);
diesel::alias!(task_queue_events as all_events: AllEvents);

/// Which kinds of rows have to be removed or sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanupNeeds {
    /// Expired pauses.
    pub pauses: bool,
    /// Notices, of any age.
    pub notices: bool,
    /// Tasks whose time to start has passed. They may have a run in progress.
    pub expired: bool,
    /// Rows past their retention period. They may be kept for another reason.
    pub prunable: bool,
    /// Receipts that are no longer needed.
    pub receipts: bool,
    /// Whether there is any schedule.
    pub schedules: bool,
    /// Whether any schedule comes from a configuration file, so that it may be gone from it.
    pub configured_schedules: bool,
    /// Whether a task waits for the end of one that is finished.
    pub missed_ends: bool,
}

/// The time limit of each kind of rows.
struct CleanupLimits {
    now: SqlMoment,
    success: SqlMoment,
    cancelled: SqlMoment,
    failed: SqlMoment,
    outputs: SqlMoment,
    results: SqlMoment,
    runners: SqlMoment,
    receipts: SqlMoment,
}

impl CleanupNeeds {
    /// Everything, if the needs are unknown.
    pub const ALL: Self = Self {
        pauses: true,
        notices: true,
        expired: true,
        prunable: true,
        receipts: true,
        schedules: true,
        configured_schedules: true,
        missed_ends: true,
    };
}

impl Store {
    /// Returns what has to be cleaned up by these times and numbers.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn cleanup_needs(&mut self, retention: &Retention) -> StoreResult<CleanupNeeds> {
        let limits = self.limits_of(retention)?;
        let needs = self.read(|conn| Ok(ask(conn, &limits, retention.outputs.days > 0)?))?;
        // Rows beyond a maximum number are found by counting, which is not done twice.
        let has_numbers = [retention.success, retention.cancelled, retention.failed].iter().any(|keep| keep.most > 0);
        Ok(CleanupNeeds { prunable: needs.prunable || has_numbers, ..needs })
    }

    fn limits_of(&mut self, retention: &Retention) -> StoreResult<CleanupLimits> {
        let mut limit = |keep: Keep| match keep.older_than_secs() {
            Some(secs) => self.so_long_ago(secs),
            None => Ok(SqlMoment::beginning()),
        };
        let (success, cancelled, failed) =
            (limit(retention.success)?, limit(retention.cancelled)?, limit(retention.failed)?);
        let (outputs, results, runners) =
            (limit(retention.outputs)?, limit(retention.results)?, limit(retention.runners)?);
        let (now, receipts) = (self.so_long_ago(0)?, self.so_long_ago(RECEIPTS_KEPT_SECS)?);
        Ok(CleanupLimits { now, success, cancelled, failed, outputs, results, runners, receipts })
    }
}

/// Whether a row has a time before the limit in this column; NULL without any row. Asks for the first time and not whether one
/// exists: PostgreSQL, which plans without the values, would read the whole table for that.
macro_rules! any_before {
    ($table:ident, $column:ident, $limit:expr) => {
        $table::table
            .filter($table::$column.is_not_null())
            .order($table::$column)
            .select($table::$column)
            .limit(1)
            .single_value()
            .le(any_year($limit).nullable())
    };
}

/// Whether a task has been finished in this status since before the limit, in the same way.
macro_rules! any_over {
    ($status:expr, $limit:expr) => {
        task_queue::table
            .filter(task_queue::last_status.eq($status.as_str()))
            .filter(task_queue::finished.eq(FINISHED))
            .filter(task_queue::status_on.is_not_null())
            .order(task_queue::status_on)
            .select(task_queue::status_on)
            .limit(1)
            .single_value()
            .le(any_year($limit).nullable())
    };
}

/// [`CleanupNeeds`] as the statement returns them.
type Found = (Option<bool>, bool, Option<bool>, Option<bool>, Option<bool>, bool, bool, bool);

fn ask(conn: &mut AnyConnection, limits: &CleanupLimits, prunes_outputs: bool) -> QueryResult<CleanupNeeds> {
    let tasks = any_over!(TaskStatus::Success, limits.success)
        .or(any_over!(TaskStatus::Cancelled, limits.cancelled))
        .or(any_over!(TaskStatus::Expired, limits.cancelled))
        .or(any_over!(TaskStatus::Failed, limits.failed))
        .or(any_over!(TaskStatus::Timeout, limits.failed))
        .or(any_before!(task_queue, expires_on, limits.now));
    // Only the first: ids and times grow together. An output that is still written to does not count as kept, so that later ones
    // are checked too.
    let first = all_outputs.select(min(all_outputs.field(task_queue_run_outputs::run_id))).single_value();
    let kept = task_queue_runs::table
        .filter(task_queue_runs::id.eq(task_queue_run_outputs::run_id))
        .filter(task_queue_runs::finished_on.ge(any_year(limits.outputs).nullable()));
    let outputs = task_queue_run_outputs::table
        .filter(task_queue_run_outputs::run_id.nullable().eq(first))
        .filter(not(exists(kept.select(task_queue_runs::id))))
        .select(task_queue_run_outputs::run_id);
    let of_none = all_events.filter(all_events.field(task_queue_events::task_queue_id).is_null());
    let first = of_none.select(min(all_events.field(task_queue_events::id))).single_value();
    let events = task_queue_events::table
        .filter(task_queue_events::id.nullable().eq(first))
        .filter(task_queue_events::occurred_on.lt(any_year(limits.runners)))
        .select(task_queue_events::id);
    let prunable = tasks
        .or(exists(outputs).and(prunes_outputs.into_sql::<Bool>()))
        .or(any_before!(task_queue_runs, results_expire_on, limits.now))
        .or(any_before!(task_queue_runs, results_on, limits.results))
        .or(any_before!(task_queue_runners, finished_on, limits.runners))
        .or(exists(events));
    let first_schedule = task_queue::table
        .filter(task_queue::schedule_head.is_not_null())
        .order((task_queue::schedule_head, task_queue::scheduled_on, task_queue::id))
        .select(task_queue::id)
        .limit(1)
        .single_value();
    let (pauses, notices, expired, prunable, receipts, schedules, configured_schedules, missed_ends): Found =
        diesel::select((
            any_before!(task_queue_pauses, until, limits.now),
            exists(task_queue_notices::table.select(task_queue_notices::id)),
            any_before!(task_queue, live_start_before, limits.now),
            prunable,
            any_before!(task_queue_receipts, written_on, limits.receipts),
            first_schedule.is_not_null(),
            exists(reading_schedules::configured_schedules()),
            exists(missed_ends!()),
        ))
        .get_result(conn)?;
    let is_so = |found: Option<bool>| found.unwrap_or(false);
    Ok(CleanupNeeds {
        pauses: is_so(pauses),
        notices,
        expired: is_so(expired),
        prunable: is_so(prunable),
        receipts: is_so(receipts),
        schedules,
        configured_schedules,
        missed_ends,
    })
}
