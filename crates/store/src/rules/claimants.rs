//! Operations of claimants between the claim and the end of a run, and queries about claimants.

use chrono::{DateTime, Utc};
use diesel::prelude::*;

use super::leases::lease_end;
use crate::backend::{self, DueFrom};
use crate::base::cells::{ShownText, TimeOrPast};
use crate::base::connection::AnyConnection;
use crate::base::connection::MultiBackend;
use crate::base::rows::RunRow;
use crate::base::schema::task_queue_rejections;
use crate::base::schema::task_queue_runs::dsl::{
    claimant, host, id, lease_expires_on, open_task_id, process_identity, running_class, status, task_queue_runs,
    token, updated_on,
};
use crate::base::sql::{db_now, db_now_plus};
use crate::records::runs::{RunRef, RunReport, held_run};
use crate::{Store, StoreResult};
use taskqueue_domain::run::claimant::HeldBack;
use taskqueue_domain::run::status::{RunStatus, TaskStatus};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Run;

type Runs = crate::base::schema::task_queue_runs::BoxedQuery<'static, MultiBackend>;

impl Store {
    /// Renews the lease of a claimant's run and saves its report. Returns the new end of the lease; `None` if the run no longer
    /// belongs to the claimant, or belongs to a runner. Also renews an expired lease whose run was not rescued yet.
    ///
    /// # Errors
    /// The database could not be written; nothing is renewed then.
    pub fn renew_outside(
        &mut self,
        run: &RunRef,
        report: &RunReport<'_>,
        lease_secs: i64,
    ) -> StoreResult<Option<DateTime<Utc>>> {
        self.write(|conn| {
            let lease = lease_expires_on.eq(db_now_plus(lease_secs).nullable());
            let renewed = diesel::update(held_run(run).filter(claimant.is_not_null()))
                .set((lease, report, updated_on.eq(db_now())))
                .execute(conn)?;
            fault_point!("claimants.before_renew_commit");
            Ok(if renewed == 1 { lease_end(conn, run.id.0)? } else { None })
        })
    }

    /// Returns up to `limit` runs in progress whose lease has expired, or that a claimant of this host has claimed and registered
    /// its process. The earliest end of a lease comes first.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_overdue_runs(&mut self, of_host: &str, limit: i64) -> StoreResult<Vec<Run>> {
        self.list_first_to_end(limit, |runs| {
            let has_process = claimant.is_not_null().and(process_identity.ne("")).and(host.eq(of_host.to_owned()));
            runs.filter(lease_expires_on.lt(db_now().nullable()).assume_not_null().or(has_process))
        })
    }

    /// Returns up to `limit` runs in progress without a report for `silent_secs` seconds. The earliest end of a lease comes
    /// first.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_silent_runs(&mut self, silent_secs: i64, limit: i64) -> StoreResult<Vec<Run>> {
        self.list_first_to_end(limit, |runs| runs.filter(updated_on.lt(db_now_plus(-silent_secs))))
    }

    /// Returns up to `limit` runs of claimants, the earliest deadline first.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_claims(&mut self, limit: i64) -> StoreResult<Vec<Run>> {
        self.list_first_to_end(limit, |runs| runs.filter(claimant.is_not_null()))
    }

    /// Returns up to `limit` runs of claimants whose last report or claim is more than `lead_secs` in the future.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_claims_in_the_future(&mut self, lead_secs: i64, limit: i64) -> StoreResult<Vec<Run>> {
        self.list_first_to_end(limit, |runs| {
            runs.filter(claimant.is_not_null()).filter(updated_on.gt(db_now_plus(lead_secs)))
        })
    }

    /// Returns the runs of these tasks that claimants have.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_claims_of_tasks(&mut self, ids: &[TaskId]) -> StoreResult<Vec<Run>> {
        let ids: Vec<i64> = ids.iter().map(|task| task.0).collect();
        self.read_each(Run::from, |conn| {
            task_queue_runs
                .filter(open_task_id.eq_any(&ids))
                .filter(status.eq(RunStatus::Processing.as_str()))
                .filter(claimant.is_not_null())
                .select(RunRow::as_select())
                .load(conn)
        })
    }

    /// Returns up to `limit` of the runs in progress that pass the filter `choose`, the earliest end of a lease first.
    fn list_first_to_end(&mut self, limit: i64, choose: impl Fn(Runs) -> Runs) -> StoreResult<Vec<Run>> {
        self.read_each(Run::from, |conn| {
            choose(task_queue_runs.filter(running_class.is_not_null()).into_boxed())
                .order((lease_expires_on, id))
                .limit(limit)
                .select(RunRow::as_select())
                .load(conn)
        })
    }

    /// Returns the run with this token. A claimant's token begins with the run's id and is always found; other tokens only while
    /// the run is in progress.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn find_run_of_token(&mut self, wanted: &str) -> StoreResult<Option<Run>> {
        let run_id = wanted.split_once('-').and_then(|(number, _)| number.parse::<i64>().ok());
        let row: Option<RunRow> = self.read(|conn| {
            let by_id = match run_id {
                Some(run_id) => task_queue_runs
                    .filter(id.eq(run_id))
                    .filter(token.eq(wanted))
                    .select(RunRow::as_select())
                    .first(conn)
                    .optional()?,
                None => None,
            };
            if by_id.is_some() {
                return Ok(by_id);
            }
            let processing = task_queue_runs.filter(running_class.is_not_null()).filter(token.eq(wanted));
            Ok(processing.select(RunRow::as_select()).first(conn).optional()?)
        })?;
        Ok(row.map(Run::from))
    }

    /// Returns true if a claimant of this name has a run.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn is_claimant_at_work(&mut self, name: &str) -> StoreResult<bool> {
        let held = task_queue_runs.filter(running_class.is_not_null()).filter(claimant.eq(name));
        self.read(|conn| Ok(diesel::select(diesel::dsl::exists(held)).get_result(conn)?))
    }

    /// Returns the claimants that have rejected the task, by name.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_rejections(&mut self, task_id: TaskId) -> StoreResult<Vec<String>> {
        use task_queue_rejections::dsl;
        self.read_each(
            |name: ShownText| name.0,
            |conn| {
                let of_task = dsl::task_queue_rejections.filter(dsl::task_id.eq(task_id.0));
                let rejected = of_task.filter(dsl::held_until.is_null());
                rejected.order((dsl::task_id, dsl::claimant)).select(dsl::claimant).load(conn)
            },
        )
    }

    /// Returns the claimants from which the task is held back now because their claim expired, by name.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_held_back(&mut self, task_id: TaskId) -> StoreResult<Vec<HeldBack>> {
        use task_queue_rejections::dsl;
        let rows: Vec<(ShownText, Option<TimeOrPast>)> = self.read(|conn| {
            let of_task = dsl::task_queue_rejections.filter(dsl::task_id.eq(task_id.0));
            let held = of_task.filter(dsl::held_until.gt(db_now().nullable()));
            Ok(held.order((dsl::task_id, dsl::claimant)).select((dsl::claimant, dsl::held_until)).load(conn)?)
        })?;
        let held =
            |(name, until): (ShownText, Option<TimeOrPast>)| Some(HeldBack { claimant: name.0, until: until?.into() });
        Ok(rows.into_iter().filter_map(held).collect())
    }

    /// Returns true if a claimant, not a runner, started the newest run of this class. Reads only the runs in progress and those
    /// of the newest task in each status.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn is_newest_start_by_claimant(&mut self, class: &str) -> StoreResult<bool> {
        use crate::base::schema::task_queue_runs::dsl;
        let newest: Option<(Option<TimeOrPast>, i64, bool)> = self.read(|conn| {
            let in_progress = task_queue_runs.filter(running_class.eq(class)).order((running_class.desc(), id.desc()));
            let mut starts: Vec<(Option<TimeOrPast>, i64, bool)> =
                in_progress.limit(1).select((dsl::started_on, id, claimant.is_not_null())).load(conn)?;
            for task in newest_tasks(conn, class)? {
                let started = task_queue_runs.filter(dsl::task_queue_id.eq(task)).filter(dsl::started_on.is_not_null());
                let newest = started.order((dsl::task_queue_id.desc(), id.desc())).limit(1);
                starts.extend(newest.select((dsl::started_on, id, claimant.is_not_null())).load::<(_, _, _)>(conn)?);
            }
            Ok(starts.into_iter().max())
        })?;
        Ok(newest.is_some_and(|(.., is_by_claimant)| is_by_claimant))
    }

    /// Returns true if a task is due and has no run yet.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn has_due_task(&mut self) -> StoreResult<bool> {
        Ok(self.read(|conn| Ok(backend::find_due(conn, DueFrom::beginning())?))?.is_some())
    }
}

/// Returns the newest task of a class in each status.
fn newest_tasks(conn: &mut AnyConnection, class: &str) -> QueryResult<Vec<i64>> {
    use crate::base::schema::task_queue::dsl;
    let mut found = Vec::with_capacity(TaskStatus::ALL.len());
    for of_task in TaskStatus::ALL {
        let of_class = dsl::task_queue.filter(dsl::task_class.eq(class)).filter(dsl::last_status.eq(of_task.as_str()));
        let newest =
            of_class.order((dsl::task_class.desc(), dsl::last_status.desc(), dsl::scheduled_on.desc(), dsl::id.desc()));
        found.extend(newest.limit(1).select(dsl::id).load::<i64>(conn)?);
    }
    Ok(found)
}
