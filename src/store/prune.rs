//! Deletes what was kept long enough, in small transactions, always from an index. Never a task that has an open run, that
//! may be tried again, for which others wait, or that is the head of a schedule; with a task go its runs, what they wrote, and
//! its events.

use diesel::dsl::{exists, not};
use diesel::prelude::*;
use serde::Serialize;

use super::backend::{self, AnyConnection};
use super::schema::{
    task_queue, task_queue_dependencies, task_queue_events, task_queue_rejections, task_queue_run_outputs,
    task_queue_runners, task_queue_runs,
};
use super::sql::{Moment, db_now, db_now_plus};
use super::{Store, StoreResult};
use crate::domain::status::TaskStatus;

/// Rows that are looked at, and rows that are deleted, at once.
const WINDOW: i64 = 500;
/// Ids in one statement.
const IDS_PER_STATEMENT: usize = 5_000;

/// Which finished tasks are deleted: those of a status, and of a class if one is named, that are older or more than this.
#[derive(Clone, Debug)]
pub struct PruneRule {
    /// LastStatus
    pub status: TaskStatus,
    /// Of this class alone.
    pub class: Option<String>,
    /// Those that changed last before so many seconds.
    pub older_than_secs: Option<i64>,
    /// All but the newest so many.
    pub at_most: Option<i64>,
}

/// A place in the order of the tasks of a status, by ScheduledOn and then Id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PrunePlace(Moment, i64);

/// A part of the tasks of a status.
#[derive(Clone, Debug, Default)]
pub struct PruneWindow {
    /// Those that may be deleted.
    ids: Vec<i64>,
    /// The newest UpdatedOn among them: whatever changes later is left alone.
    seen_on: Option<Moment>,
    /// Where the next part begins; `None` at the end.
    pub next: Option<PrunePlace>,
}

impl PruneWindow {
    /// How many may be deleted.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.ids.len()
    }
}

/// How many rows were deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// Tasks, with all that belongs to them.
    pub tasks: usize,
    /// Runs of which the output was deleted.
    pub outputs: usize,
    /// Runs of which the results were deleted.
    pub results: usize,
    /// Runners.
    pub runners: usize,
    /// Events that belonged to no task.
    pub events: usize,
}

#[derive(Queryable)]
struct Candidate {
    id: i64,
    scheduled_on: Moment,
    updated_on: Moment,
    failed_retries: i32,
    max_retries: i32,
    quarantined_on: Option<Moment>,
    current_run_id: Option<i64>,
    schedule_head: Option<String>,
}

impl Candidate {
    fn place(&self) -> PrunePlace {
        PrunePlace(self.scheduled_on, self.id)
    }

    /// Nothing happens to it any more, and nobody needs it.
    fn is_finished(&self, status: TaskStatus) -> bool {
        let has_failed = matches!(status, TaskStatus::Failed | TaskStatus::Timeout);
        let may_be_tried = has_failed && self.failed_retries < self.max_retries && self.quarantined_on.is_none();
        self.current_run_id.is_none() && self.schedule_head.is_none() && !may_be_tried
    }
}

/// Up to which place a rule reaches, and from which change on a row is too young.
struct Bounds {
    until: PrunePlace,
    younger_from: Option<Moment>,
}

impl Store {
    /// A part of the tasks that the rule reaches by their age; `from` is where the part before ended.
    ///
    /// # Errors
    /// The database could not be asked.
    pub fn find_old_tasks(&mut self, rule: &PruneRule, from: Option<PrunePlace>) -> StoreResult<PruneWindow> {
        let Some(secs) = rule.older_than_secs else { return Ok(PruneWindow::default()) };
        self.read(|conn| {
            let limit: Moment = diesel::select(db_now_plus(-secs)).get_result(conn)?;
            // Whatever was to be processed later than that ended later, too.
            let bounds = Bounds { until: PrunePlace(limit, i64::MAX), younger_from: Some(limit) };
            load_window(conn, rule, from, &bounds)
        })
    }

    /// A part of the tasks that are too many by the rule.
    ///
    /// # Errors
    /// The database could not be asked.
    pub fn find_excess_tasks(&mut self, rule: &PruneRule, from: Option<PrunePlace>) -> StoreResult<PruneWindow> {
        let Some(most) = rule.at_most else { return Ok(PruneWindow::default()) };
        self.read(|conn| match first_in_excess(conn, rule, most)? {
            Some(until) => load_window(conn, rule, from, &Bounds { until, younger_from: None }),
            None => Ok(PruneWindow::default()),
        })
    }

    /// Deletes the tasks of a part that have not changed since, and returns how many.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn prune_tasks(&mut self, rule: &PruneRule, window: &PruneWindow) -> StoreResult<usize> {
        let Some(seen_on) = window.seen_on else { return Ok(0) };
        self.write(|conn| {
            backend::enter_both_tables(conn)?;
            // Whoever queues a task that waits for one of these locks it first.
            backend::lock_tasks(conn, &window.ids)?;
            let ids = still_prunable(conn, rule.status, &window.ids, seen_on)?;
            let deleted = diesel::delete(task_queue::table.filter(task_queue::id.eq_any(&ids))).execute(conn)?;
            fault_point!("prune.tasks_deleted");
            delete_what_belongs_to(conn, &ids)?;
            fault_point!("prune.before_commit");
            Ok(deleted)
        })
    }

    /// Deletes what the oldest runs wrote, where they ended so many seconds ago, and returns of how many runs.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn prune_outputs(&mut self, older_than_secs: i64) -> StoreResult<usize> {
        use task_queue_run_outputs::dsl;
        // Runs end about in the order of their ids: where the first one is young, all are.
        let first: Option<i64> = self.read(|conn| {
            Ok(dsl::task_queue_run_outputs
                .order((dsl::run_id, dsl::stream))
                .select(dsl::run_id)
                .first(conn)
                .optional()?)
        })?;
        let Some(first) = first else { return Ok(0) };
        if self.read(|conn| old_runs(conn, &[first], older_than_secs))?.is_empty() {
            return Ok(0);
        }
        self.write(|conn| {
            let mut ids: Vec<i64> = dsl::task_queue_run_outputs
                .order((dsl::run_id, dsl::stream))
                .limit(WINDOW)
                .select(dsl::run_id)
                .load(conn)?;
            ids.dedup();
            let old = old_runs(conn, &ids, older_than_secs)?;
            diesel::delete(dsl::task_queue_run_outputs.filter(dsl::run_id.eq_any(&old))).execute(conn)?;
            Ok(old.len())
        })
    }

    /// Deletes the oldest results, of runs that ended so many seconds ago, and returns of how many runs. All else about a
    /// run stays as it is; those whose results are gone are in the index no more.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn prune_results(&mut self, older_than_secs: i64) -> StoreResult<usize> {
        use task_queue_runs::dsl;
        let ids: Vec<i64> = self.read(|conn| {
            let limit: Moment = diesel::select(db_now_plus(-older_than_secs)).get_result(conn)?;
            Ok(dsl::task_queue_runs
                .filter(dsl::results_on.lt(limit))
                .order((dsl::results_on, dsl::id))
                .limit(WINDOW)
                .select(dsl::id)
                .load(conn)?)
        })?;
        if ids.is_empty() {
            return Ok(0);
        }
        self.write(|conn| {
            let old = dsl::task_queue_runs.filter(dsl::id.eq_any(&ids)).filter(dsl::finished_on.is_not_null());
            Ok(diesel::update(old)
                .set((dsl::results.eq(None::<String>), dsl::updated_on.eq(db_now())))
                .execute(conn)?)
        })
    }

    /// Deletes runners that ended so many seconds ago, and returns how many.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn prune_runners(&mut self, older_than_secs: i64) -> StoreResult<usize> {
        use task_queue_runners::dsl;
        let ids: Vec<i64> = self.read(|conn| {
            let limit: Moment = diesel::select(db_now_plus(-older_than_secs)).get_result(conn)?;
            Ok(dsl::task_queue_runners
                .filter(dsl::finished_on.lt(limit))
                .order((dsl::finished_on, dsl::id))
                .limit(WINDOW)
                .select(dsl::id)
                .load(conn)?)
        })?;
        if ids.is_empty() {
            return Ok(0);
        }
        self.write(|conn| Ok(diesel::delete(dsl::task_queue_runners.filter(dsl::id.eq_any(&ids))).execute(conn)?))
    }

    /// Deletes events of that age that belong to no task, and returns how many.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn prune_events(&mut self, older_than_secs: i64) -> StoreResult<usize> {
        use task_queue_events::dsl;
        let oldest: Vec<(i64, Moment)> = self.read(|conn| {
            let limit: Moment = diesel::select(db_now_plus(-older_than_secs)).get_result(conn)?;
            let oldest: Vec<(i64, Moment)> = dsl::task_queue_events
                .filter(dsl::task_queue_id.is_null())
                .order((dsl::task_queue_id, dsl::id))
                .limit(WINDOW)
                .select((dsl::id, dsl::occurred_on))
                .load(conn)?;
            Ok(oldest.into_iter().filter(|(_, on)| *on < limit).collect())
        })?;
        let ids: Vec<i64> = oldest.into_iter().map(|(id, _)| id).collect();
        if ids.is_empty() {
            return Ok(0);
        }
        self.write(|conn| Ok(diesel::delete(dsl::task_queue_events.filter(dsl::id.eq_any(&ids))).execute(conn)?))
    }
}

/// The newest of those that are too many.
fn first_in_excess(conn: &mut AnyConnection, rule: &PruneRule, most: i64) -> StoreResult<Option<PrunePlace>> {
    use task_queue::dsl;
    let of_status = dsl::task_queue
        .filter(dsl::last_status.eq(rule.status.as_str()))
        .select((dsl::scheduled_on, dsl::id))
        .offset(most)
        .limit(1);
    let found: Option<(Moment, i64)> = match &rule.class {
        None => of_status.order((dsl::last_status.desc(), dsl::scheduled_on.desc(), dsl::id.desc())).first(conn),
        Some(class) => of_status
            .filter(dsl::task_class.eq(class))
            .order((dsl::task_class.desc(), dsl::last_status.desc(), dsl::scheduled_on.desc(), dsl::id.desc()))
            .first(conn),
    }
    .optional()?;
    Ok(found.map(|(on, id)| PrunePlace(on, id)))
}

fn load_window(
    conn: &mut AnyConnection,
    rule: &PruneRule,
    from: Option<PrunePlace>,
    bounds: &Bounds,
) -> StoreResult<PruneWindow> {
    let rows = load_candidates(conn, rule, from, bounds.until.0)?;
    let is_last = i64::try_from(rows.len()).unwrap_or(i64::MAX) < WINDOW;
    let next = if is_last { None } else { rows.last().map(Candidate::place) };
    let is_found = |row: &Candidate| {
        let is_old = bounds.younger_from.is_none_or(|young| row.updated_on < young);
        is_old && row.place() <= bounds.until && row.is_finished(rule.status)
    };
    let found: Vec<Candidate> = rows.into_iter().filter(is_found).collect();
    let needed = waited_for(conn, &found.iter().map(|row| row.id).collect::<Vec<_>>())?;
    let mut window = PruneWindow { next, ..PruneWindow::default() };
    for row in found.into_iter().filter(|row| !needed.contains(&row.id)) {
        window.ids.push(row.id);
        window.seen_on = window.seen_on.max(Some(row.updated_on));
    }
    Ok(window)
}

fn load_candidates(
    conn: &mut AnyConnection,
    rule: &PruneRule,
    from: Option<PrunePlace>,
    until: Moment,
) -> StoreResult<Vec<Candidate>> {
    use task_queue::dsl;
    let of_status = dsl::task_queue
        .filter(dsl::last_status.eq(rule.status.as_str()))
        .filter(dsl::scheduled_on.le(until))
        .limit(WINDOW)
        .select((
            dsl::id,
            dsl::scheduled_on,
            dsl::updated_on,
            dsl::failed_retries,
            dsl::max_retries,
            dsl::quarantined_on,
            dsl::current_run_id,
            dsl::schedule_head,
        ));
    let after = |PrunePlace(on, id)| dsl::scheduled_on.gt(on).or(dsl::scheduled_on.eq(on).and(dsl::id.gt(id)));
    // The whole index is named in the order, as in `list_by_status`.
    let by_status = (dsl::last_status, dsl::scheduled_on, dsl::id);
    let by_class = (dsl::task_class, dsl::last_status, dsl::scheduled_on, dsl::id);
    Ok(match (&rule.class, from) {
        (None, None) => of_status.order(by_status).load(conn)?,
        (None, Some(place)) => of_status.filter(after(place)).order(by_status).load(conn)?,
        (Some(class), None) => of_status.filter(dsl::task_class.eq(class)).order(by_class).load(conn)?,
        (Some(class), Some(place)) => {
            of_status.filter(dsl::task_class.eq(class)).filter(after(place)).order(by_class).load(conn)?
        }
    })
}

/// Those that are still as they were seen.
fn still_prunable(conn: &mut AnyConnection, status: TaskStatus, ids: &[i64], seen_on: Moment) -> StoreResult<Vec<i64>> {
    use task_queue::dsl;
    let has_open_run = exists(task_queue_runs::table.filter(task_queue_runs::open_task_id.eq(dsl::id.nullable())));
    let unchanged: Vec<i64> = dsl::task_queue
        .filter(dsl::id.eq_any(ids))
        .filter(dsl::last_status.eq(status.as_str()))
        .filter(dsl::updated_on.le(seen_on))
        .filter(dsl::current_run_id.is_null())
        .filter(dsl::due_on.is_null())
        .filter(dsl::schedule_head.is_null())
        .filter(not(has_open_run))
        .order(dsl::id)
        .select(dsl::id)
        .load(conn)?;
    let needed = waited_for(conn, &unchanged)?;
    Ok(unchanged.into_iter().filter(|id| !needed.contains(id)).collect())
}

/// Those of these tasks for which others wait.
fn waited_for(conn: &mut AnyConnection, ids: &[i64]) -> StoreResult<Vec<i64>> {
    use task_queue_dependencies::dsl;
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    Ok(dsl::task_queue_dependencies
        .filter(dsl::depends_on_id.eq_any(ids))
        .filter(dsl::is_satisfied.eq(false))
        .select(dsl::depends_on_id)
        .load(conn)?)
}

fn delete_what_belongs_to(conn: &mut AnyConnection, tasks: &[i64]) -> StoreResult<()> {
    if tasks.is_empty() {
        return Ok(());
    }
    let runs: Vec<i64> = task_queue_runs::table
        .filter(task_queue_runs::task_queue_id.eq_any(tasks))
        .select(task_queue_runs::id)
        .load(conn)?;
    for part in runs.chunks(IDS_PER_STATEMENT) {
        diesel::delete(task_queue_run_outputs::table.filter(task_queue_run_outputs::run_id.eq_any(part)))
            .execute(conn)?;
        diesel::delete(task_queue_runs::table.filter(task_queue_runs::id.eq_any(part))).execute(conn)?;
    }
    {
        use task_queue_dependencies::dsl;
        diesel::delete(dsl::task_queue_dependencies.filter(dsl::task_id.eq_any(tasks))).execute(conn)?;
        diesel::delete(dsl::task_queue_dependencies.filter(dsl::depends_on_id.eq_any(tasks))).execute(conn)?;
    }
    diesel::delete(task_queue_rejections::table.filter(task_queue_rejections::task_id.eq_any(tasks))).execute(conn)?;
    let of_tasks = task_queue_events::task_queue_id.eq_any(tasks.iter().copied().map(Some));
    diesel::delete(task_queue_events::table.filter(of_tasks)).execute(conn)?;
    Ok(())
}

/// Those of these runs that ended so many seconds ago, or that are gone.
fn old_runs(conn: &mut AnyConnection, ids: &[i64], older_than_secs: i64) -> StoreResult<Vec<i64>> {
    use task_queue_runs::dsl;
    let limit: Moment = diesel::select(db_now_plus(-older_than_secs)).get_result(conn)?;
    let known: Vec<(i64, Option<Moment>)> =
        dsl::task_queue_runs.filter(dsl::id.eq_any(ids)).select((dsl::id, dsl::finished_on)).load(conn)?;
    let is_kept = |id: &i64| known.iter().any(|(known, on)| known == id && on.is_none_or(|on| on >= limit));
    Ok(ids.iter().copied().filter(|id| !is_kept(id)).collect())
}
