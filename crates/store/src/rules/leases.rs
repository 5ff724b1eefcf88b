//! Leases: how runners show that they are alive, and how silent ones are found. All times are written and compared by the
//! database's clock (rule R8).

use chrono::{DateTime, TimeDelta, Utc};
use diesel::prelude::*;

use crate::backend::{self, batch};
use crate::base::cells::TimeOrPast;
use crate::base::connection::AnyConnection;
use crate::base::schema::{task_queue_runners, task_queue_runs};
use crate::base::sql::{SqlMoment, db_now, db_now_plus};
use crate::journal::events::insert_event;
use crate::records::runs::{RunRef, held_run};
use crate::session::origin::Origin;
use crate::{Store, StoreResult};
use taskqueue_domain::limits::lease::TwoClocks;
use taskqueue_domain::task::ids::{RunId, RunnerId};

/// A request to renew leases.
#[derive(Clone, Copy, Debug)]
pub struct RenewalRequest<'a> {
    /// The row of the runner.
    pub runner_id: RunnerId,
    /// Runs whose leases are due for renewal.
    pub due: &'a [RunRef],
    /// Recently claimed runs, renewed only if the clock was set since the last renewal.
    pub fresh: &'a [RunRef],
    /// The duration of the lease.
    pub lease_secs: i64,
    /// Reads its host's clock since boot, in milliseconds.
    pub boot_ms: fn() -> i64,
    /// Who is recorded as noticing that the clock was set.
    pub origin: &'a Origin,
}

/// The result of a renewal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renewal {
    /// Whether the runner's row is still open, so that it still has its slots.
    pub is_registered: bool,
    /// Runs that no longer belong to the runner.
    pub lost: Vec<RunId>,
    /// Whether the database's clock was set since the last renewal, so that all runs were renewed.
    pub was_clock_set: bool,
}

impl Store {
    /// Renews the runner's row and the leases of its runs, and marks their tasks as `processing`. Also renews expired leases: a
    /// process that takes over a run for its lease checks the lease in the same statement.
    ///
    /// # Errors
    /// The database could not be written; nothing is renewed then.
    pub fn renew_leases(&mut self, request: &RenewalRequest<'_>) -> StoreResult<Renewal> {
        self.write(|conn| {
            backend::enter_both_tables(conn)?;
            let step = step_since_renewal(conn, request)?;
            let was_clock_set = !step.is_zero();
            let fresh = if was_clock_set { request.fresh } else { &[] };
            // Batches of ends are written in the same order, so neither waits for the other.
            let mut runs: Vec<&RunRef> = request.due.iter().chain(fresh).collect();
            runs.sort_unstable_by_key(|run| run.id.0);
            let (mut lost, mut renewed) = (Vec::new(), Vec::new());
            for run in runs {
                use task_queue_runs::dsl;
                let lease = dsl::lease_expires_on.eq(db_now_plus(request.lease_secs).nullable());
                match diesel::update(held_run(run)).set((lease, dsl::updated_on.eq(db_now()))).execute(conn)? {
                    0 => lost.push(run.id),
                    _ => renewed.push(run.id.0),
                }
            }
            batch::mark_started(conn, &renewed)?;
            use task_queue_runners::dsl;
            let open =
                dsl::task_queue_runners.filter(dsl::id.eq(request.runner_id.0)).filter(dsl::finished_on.is_null());
            let heartbeat = (dsl::heartbeat_on.eq(db_now()), dsl::heartbeat_boot_ms.eq((request.boot_ms)()));
            let is_registered = diesel::update(open).set(heartbeat).execute(conn)? == 1;
            if was_clock_set {
                let details = serde_json::json!({ "seconds": step.num_seconds(), "runner_id": request.runner_id });
                insert_event(conn, &request.origin.event("clock-set", None, None, details))?;
            }
            fault_point!("lease.before_renew_commit");
            Ok(Renewal { is_registered, lost, was_clock_set })
        })
    }

    /// Returns true if expired leases count.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn leases_count(&mut self, lease_secs: i64) -> StoreResult<bool> {
        self.read(|conn| leases_count(conn, lease_secs))
    }

    /// Marks those of these runners as finished that have not renewed for the duration of a lease, if expired leases count.
    /// Returns how many.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn finish_silent_runners(&mut self, ids: &[RunnerId], lease_secs: i64) -> StoreResult<usize> {
        use task_queue_runners::dsl;
        if ids.is_empty() {
            return Ok(0);
        }
        let ids: Vec<i64> = ids.iter().map(|runner| runner.0).collect();
        self.write(|conn| {
            if !leases_count(conn, lease_secs)? {
                return Ok(0);
            }
            let silent = dsl::task_queue_runners
                .filter(dsl::id.eq_any(&ids))
                .filter(dsl::finished_on.is_null())
                .filter(dsl::heartbeat_on.lt(db_now_plus(-lease_secs)));
            Ok(diesel::update(silent).set(dsl::finished_on.eq(db_now().nullable())).execute(conn)?)
        })
    }
}

/// Returns by how much the database's clock was set since the runner's last renewal. Compares only clocks of one host.
fn step_since_renewal(conn: &mut AnyConnection, request: &RenewalRequest<'_>) -> StoreResult<TimeDelta> {
    use task_queue_runners::dsl;
    let last: Option<(TimeOrPast, Option<i64>)> = dsl::task_queue_runners
        .filter(dsl::id.eq(request.runner_id.0))
        .select((dsl::heartbeat_on, dsl::heartbeat_boot_ms))
        .first(conn)
        .optional()?;
    let Some((on, Some(boot_ms))) = last else { return Ok(TimeDelta::zero()) };
    let database_now: SqlMoment = diesel::select(db_now()).get_result(conn)?;
    let now = TwoClocks { on: database_now.into(), boot_ms: (request.boot_ms)() };
    Ok(now.step_since(TwoClocks { on: on.into(), boot_ms }))
}

/// Returns true if an expired lease counts: the server must have been up for the duration of a lease. While it was down, no
/// runner could renew, and a runner that waits to renew is not dead. Every statement that acts on an expired lease checks this
/// first, in its transaction: a restart of the server in between aborts the transaction.
pub(crate) fn leases_count(conn: &mut AnyConnection, lease_secs: i64) -> StoreResult<bool> {
    Ok(backend::server_up_secs(conn)?.is_none_or(|up_secs| up_secs >= lease_secs))
}

/// Returns when the lease of a run expires.
pub(crate) fn lease_end(conn: &mut AnyConnection, run_id: i64) -> StoreResult<Option<DateTime<Utc>>> {
    use task_queue_runs::dsl;
    let until: Option<Option<TimeOrPast>> =
        dsl::task_queue_runs.filter(dsl::id.eq(run_id)).select(dsl::lease_expires_on).first(conn).optional()?;
    Ok(until.flatten().map(DateTime::from))
}
