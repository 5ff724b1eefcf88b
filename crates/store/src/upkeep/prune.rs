//! Deletes expired rows, or tasks named by an operator, in small transactions, always through an index. Deleting a task also
//! deletes its runs, their output, and its events.

use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use diesel::prelude::*;
use serde::Serialize;

use super::prunable::{PruneCandidate, PruneVerdict, find_kept, judge, load_by_id};
use crate::backend;
use crate::base::cells::TimeOrPast;
use crate::base::connection::AnyConnection;
use crate::base::schema::{
    task_queue, task_queue_dependencies, task_queue_events, task_queue_rejections, task_queue_run_outputs,
    task_queue_runners, task_queue_runs,
};
use crate::base::sql::{SqlMoment, any_year, db_now, shortest};
use crate::journal::events::{NewEvent, insert_event};
use crate::reading::status::{FINISHED, FINISHED_WITH_KEEP, NOT_FINISHED};
use crate::transitions::{keep_as_classes_state, keep_claims_out};
use crate::{Store, StoreResult};
use taskqueue_domain::run::retention::{KeepOfClass, Kept};
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::ids::TaskId;

/// The maximum number of rows that are read, and deleted, at once.
const WINDOW: i64 = 500;
/// How long a read clock is extrapolated.
const CLOCK_FOR: Duration = Duration::from_secs(1);
/// Ids in one statement.
const IDS_PER_STATEMENT: usize = 5_000;

/// Which finished tasks are deleted. Either those with a status, and a class if given, that exceed an age or a number and do not
/// state how long they are kept. Or those whose stated retention has expired.
#[derive(Clone, Debug)]
pub struct PruneRule {
    /// LastStatus
    pub status: TaskStatus,
    /// Tasks whose retention, as stated by them or their classes, has expired; age and number do not apply then.
    pub has_expired: bool,
    /// Only tasks of this class.
    pub class: Option<String>,
    /// Tasks that have been finished for this many seconds.
    pub older_than_secs: Option<i64>,
    /// All except this many of the status, of any class: those that finished last are kept.
    pub at_most: Option<i64>,
}

/// A position in the scan order of tasks: by StatusOn, or by ScheduledOn if a class is given, and then by Id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PrunePlace(SqlMoment, i64);

/// A part of the tasks with a status.
#[derive(Clone, Debug, Default)]
pub struct PruneWindow {
    /// Those that may be deleted.
    ids: Vec<i64>,
    /// How many of them were ended by SQL only and have a class that states how long they are kept: the rule skips these.
    stated: usize,
    /// How many of the skipped ones have a stated retention that has expired.
    stated_and_expired: usize,
    /// The newest UpdatedOn among them: tasks that change later are skipped.
    seen_on: Option<SqlMoment>,
    /// Where the next part begins; `None` at the end.
    pub next: Option<PrunePlace>,
}

impl PruneWindow {
    /// Returns true if no task is to be deleted or checked.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns how many are deleted, with or without those whose stated retention has expired.
    #[must_use]
    pub const fn count(&self, with_expired: bool) -> usize {
        self.ids.len() - self.stated + if with_expired { self.stated_and_expired } else { 0 }
    }
}

/// How many rows were deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// Tasks, with all related rows.
    pub tasks: usize,
    /// Runs whose output was deleted.
    pub outputs: usize,
    /// Runs whose results were deleted.
    pub results: usize,
    /// Runners.
    pub runners: usize,
    /// Events without a task.
    pub events: usize,
}

impl PruneRule {
    /// Returns a rule for tasks with a status that have been finished for this many seconds.
    #[must_use]
    pub const fn older_than(status: TaskStatus, secs: i64) -> Self {
        Self { status, has_expired: false, class: None, older_than_secs: Some(secs), at_most: None }
    }

    /// Returns true if the rule applies to a task by age or number, as far as its row shows.
    fn is_of(&self, row: &PruneCandidate) -> bool {
        row.last_status == self.status.as_str()
            && row.finished == if self.has_expired { FINISHED_WITH_KEEP } else { FINISHED }
            && self.place_of(row).is_some()
    }

    /// Returns its position; `None` if it is not finished.
    fn place_of(&self, row: &PruneCandidate) -> Option<PrunePlace> {
        let on = if self.has_expired { row.expires_on } else { row.status_on };
        on.filter(|_| row.finished != NOT_FINISHED).map(|on| PrunePlace(on, row.id))
    }
}

impl Store {
    /// Returns the end of the tasks that the rule covers by age; `None` if it covers none.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn last_old_task(&mut self, rule: &PruneRule) -> StoreResult<Option<PrunePlace>> {
        if rule.has_expired {
            return Ok(Some(PrunePlace(self.so_long_ago(0)?, i64::MIN)));
        }
        let Some(secs) = rule.older_than_secs else { return Ok(None) };
        Ok(Some(PrunePlace(self.so_long_ago(secs)?, i64::MIN)))
    }

    /// Returns the end of the tasks that exceed the number of the rule. Counts all tasks that are kept, so it should be called
    /// once and not for each part.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn last_excess_task(&mut self, rule: &PruneRule) -> StoreResult<Option<PrunePlace>> {
        let Some(most) = rule.at_most else { return Ok(None) };
        self.read(|conn| first_in_excess(conn, rule.status, most))
    }

    /// Returns a part of the tasks that the rule covers, up to `until`; `from` is where the previous part ended.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn find_prunable_tasks(
        &mut self,
        rule: &PruneRule,
        from: Option<PrunePlace>,
        until: PrunePlace,
    ) -> StoreResult<PruneWindow> {
        let mut window = PruneWindow::default();
        let rows = self.read(|conn| load_window(conn, rule, from, until, &mut window))?;
        if let Some(keep_of) = self.keep_of.clone().filter(|_| !rule.has_expired && !rows.is_empty()) {
            let now = DateTime::from(self.so_long_ago(0)?);
            for expires_on in rows.iter().filter_map(|row| stated_end(row, &keep_of)) {
                window.stated += 1;
                window.stated_and_expired += usize::from(expires_on.is_some_and(|on| on <= now));
            }
        }
        Ok(window)
    }

    /// Deletes the tasks of a part that have not changed and are not in use, and returns how many. If there are any, the event
    /// `kept` is recorded with their number.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn prune_tasks(
        &mut self,
        rule: &PruneRule,
        window: &PruneWindow,
        kept: Option<&NewEvent>,
    ) -> StoreResult<usize> {
        let Some(seen_on) = window.seen_on else { return Ok(0) };
        let keep_of = self.keep_of.clone().filter(|_| !rule.has_expired);
        self.write_kept(kept, |conn| {
            let free = enter_tasks(conn, &window.ids)?;
            // Tasks that were ended by SQL only do not have the retention of their class yet.
            keep_as_classes_state(conn, keep_of.as_ref(), &free)?;
            let mut rows = load_by_id(conn, &free)?;
            rows.retain(|row| rule.is_of(row) && row.updated_on <= seen_on);
            let stays = find_kept(conn, &rows)?;
            let ids: Vec<i64> = rows.iter().map(|row| row.id).filter(|id| !stays.contains_key(id)).collect();
            delete_tasks(conn, &ids, kept)
        })
    }

    /// Returns for each of these tasks whether it may be deleted, if all that may be are deleted together.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn judge_tasks(&mut self, tasks: &[TaskId]) -> StoreResult<Vec<PruneVerdict>> {
        let ids: Vec<i64> = tasks.iter().map(|id| id.0).collect();
        let mut verdicts = self.read(|conn| judge(conn, &ids))?;
        Ok(ids.iter().map(|id| verdicts.remove(id).unwrap_or(PruneVerdict::NoSuchTask)).collect())
    }

    /// Deletes those of these tasks that may be deleted and are not in use, at any age, in one transaction, with one verdict for
    /// each. If there are any, the event `kept` is recorded with their number.
    ///
    /// # Errors
    /// The database could not be written; nothing has changed then.
    pub fn prune_named_tasks(&mut self, tasks: &[TaskId], kept: Option<&NewEvent>) -> StoreResult<Vec<PruneVerdict>> {
        let mut verdicts = self.judge_tasks(tasks)?;
        let goes = |verdict: &PruneVerdict| *verdict == PruneVerdict::Goes;
        // The rows of other tasks are not locked, so that they do not block other transactions.
        let named = tasks.iter().zip(&verdicts).filter(|(_, verdict)| goes(verdict));
        let ids: Vec<i64> = named.map(|(id, _)| id.0).collect();
        if ids.is_empty() {
            return Ok(verdicts);
        }
        let mut judged = self.write_once(|conn| {
            let free = enter_tasks(conn, &ids)?;
            let mut judged = judge(conn, &free)?;
            let going: Vec<i64> = free.iter().copied().filter(|id| judged.get(id).is_some_and(goes)).collect();
            let used: Vec<i64> = ids.iter().copied().filter(|id| !free.contains(id)).collect();
            for row in load_by_id(conn, &used)? {
                judged.insert(row.id, PruneVerdict::Stays { status: row.last_status, why: Kept::InUse });
            }
            delete_tasks(conn, &going, kept)?;
            Ok(judged)
        })?;
        for (id, verdict) in tasks.iter().zip(&mut verdicts).filter(|(_, verdict)| goes(verdict)) {
            *verdict = judged.remove(&id.0).unwrap_or(PruneVerdict::NoSuchTask);
        }
        Ok(verdicts)
    }

    /// Deletes the output of the oldest runs that ended `older_than_secs` seconds ago or earlier, and returns the number of runs.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn prune_outputs(&mut self, older_than_secs: i64, kept: Option<&NewEvent>) -> StoreResult<usize> {
        use task_queue_run_outputs::dsl;
        let limit = self.so_long_ago(older_than_secs)?;
        self.prune_part(
            ("outputs", kept),
            |conn| old_runs_with_output(conn, limit),
            |conn, runs| {
                // Another process may prune at the same time.
                let mut left = backend::lock_outputs(conn, runs)?;
                left.dedup();
                diesel::delete(dsl::task_queue_run_outputs.filter(dsl::run_id.eq_any(&left))).execute(conn)?;
                Ok(left.len())
            },
        )
    }

    /// Deletes the oldest results, of runs that ended `older_than_secs` seconds ago or earlier, and returns the number of runs.
    /// Everything else about a run is kept; runs without results are no longer in the index.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn prune_results(&mut self, older_than_secs: i64, kept: Option<&NewEvent>) -> StoreResult<usize> {
        use task_queue_runs::dsl;
        let limit = self.so_long_ago(older_than_secs)?;
        self.prune_results_of(kept, |conn| {
            let old = dsl::task_queue_runs.filter(dsl::results_on.lt(limit)).order((dsl::results_on, dsl::id));
            Ok(old.limit(WINDOW).select(dsl::id).load(conn)?)
        })
    }

    /// Deletes results whose retention, as stated by their tasks or classes, has expired, and returns the number of runs.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn prune_expired_results(&mut self, kept: Option<&NewEvent>) -> StoreResult<usize> {
        use task_queue_runs::dsl;
        let now = self.so_long_ago(0)?;
        self.prune_results_of(kept, |conn| {
            let expired = dsl::task_queue_runs.filter(dsl::results_expire_on.le(now));
            let first = expired.order((dsl::results_expire_on, dsl::id)).limit(WINDOW);
            Ok(first.select(dsl::id).load(conn)?)
        })
    }

    fn prune_results_of(
        &mut self,
        kept: Option<&NewEvent>,
        find: impl FnMut(&mut AnyConnection) -> StoreResult<Vec<i64>>,
    ) -> StoreResult<usize> {
        use task_queue_runs::dsl;
        self.prune_part(("results", kept), find, |conn, runs| {
            let old = dsl::task_queue_runs.filter(dsl::id.eq_any(runs)).filter(dsl::finished_on.is_not_null());
            let without = (dsl::results.eq(None::<String>), dsl::updated_on.eq(db_now()));
            Ok(diesel::update(old).set(without).execute(conn)?)
        })
    }

    /// Deletes runners that ended `older_than_secs` seconds ago or earlier, and returns how many.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn prune_runners(&mut self, older_than_secs: i64, kept: Option<&NewEvent>) -> StoreResult<usize> {
        use task_queue_runners::dsl;
        let limit = self.so_long_ago(older_than_secs)?;
        self.prune_part(
            ("runners", kept),
            |conn| {
                let old = dsl::task_queue_runners.filter(dsl::finished_on.lt(limit)).order((dsl::finished_on, dsl::id));
                Ok(old.limit(WINDOW).select(dsl::id).load(conn)?)
            },
            |conn, ids| Ok(diesel::delete(dsl::task_queue_runners.filter(dsl::id.eq_any(ids))).execute(conn)?),
        )
    }

    /// Deletes events of that age without a task, and returns how many.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn prune_events(&mut self, older_than_secs: i64, kept: Option<&NewEvent>) -> StoreResult<usize> {
        use task_queue_events::dsl;
        let limit = self.so_long_ago(older_than_secs)?;
        self.prune_part(
            ("events", kept),
            |conn| {
                let of_no_task = dsl::task_queue_events.filter(dsl::task_queue_id.is_null());
                let oldest = of_no_task.order((dsl::task_queue_id, dsl::id)).limit(WINDOW);
                let rows: Vec<(i64, TimeOrPast)> = oldest.select((dsl::id, dsl::occurred_on)).load(conn)?;
                Ok(rows.into_iter().filter(|(_, on)| on.0 < limit).map(|(id, _)| id).collect())
            },
            |conn, ids| Ok(diesel::delete(dsl::task_queue_events.filter(dsl::id.eq_any(ids))).execute(conn)?),
        )
    }

    /// Returns a time in the past by the database's clock (rule R8), which is not queried for each kind of rows.
    pub(crate) fn so_long_ago(&mut self, secs: i64) -> StoreResult<SqlMoment> {
        let now = match self.recent_clock {
            Some((clock, asked)) if asked.elapsed() < CLOCK_FOR => clock + asked.elapsed(),
            _ => {
                let clock = self.now()?;
                self.recent_clock = Some((clock, Instant::now()));
                clock
            }
        };
        let ago = TimeDelta::try_seconds(secs).and_then(|ago| now.checked_sub_signed(ago));
        Ok(ago.map_or_else(SqlMoment::beginning, SqlMoment::from).max(SqlMoment::beginning()))
    }

    /// Prunes the rows that `find` returns, which stay prunable, and returns how many. Writes nothing if there are none.
    fn prune_part(
        &mut self,
        (what, kept): (&str, Option<&NewEvent>),
        find: impl FnMut(&mut AnyConnection) -> StoreResult<Vec<i64>>,
        mut prune: impl FnMut(&mut AnyConnection, &[i64]) -> StoreResult<usize>,
    ) -> StoreResult<usize> {
        let ids = self.read(find)?;
        if ids.is_empty() {
            return Ok(0);
        }
        self.write_kept(kept, |conn| {
            backend::enter_both_tables(conn)?;
            let count = prune(conn, &ids)?;
            keep_count(conn, kept, what, count)?;
            Ok(count)
        })
    }

    /// Runs a write transaction, with an event exactly once: a repeat would find nothing to delete, but must report what the
    /// first attempt has deleted.
    fn write_kept(
        &mut self,
        kept: Option<&NewEvent>,
        work: impl FnMut(&mut AnyConnection) -> StoreResult<usize>,
    ) -> StoreResult<usize> {
        if kept.is_some() { self.write_once(work) } else { self.write(work) }
    }
}

/// Locks these tasks, and returns those that were locked; tasks that other transactions have locked are skipped. Must be called
/// first in a transaction that deletes them. Excludes claims before it locks, because a prunable task may have got a run since it
/// was found. While claims are excluded, it must not wait. A transaction that queues a dependant also locks the task's row.
fn enter_tasks(conn: &mut AnyConnection, ids: &[i64]) -> StoreResult<Vec<i64>> {
    backend::enter_both_tables(conn)?;
    keep_claims_out(conn)?;
    Ok(backend::lock_free_tasks(conn, ids)?)
}

/// Returns where the next part begins, in the order of the index used.
fn next_place(rule: &PruneRule, row: &PruneCandidate) -> Option<PrunePlace> {
    let on = match rule {
        PruneRule { has_expired: true, .. } => row.expires_on,
        PruneRule { class: Some(_), .. } => Some(row.scheduled_on),
        _ => row.status_on,
    };
    on.map(|on| PrunePlace(on, row.id))
}

/// Returns the newest excess task. Tasks that keep their key beyond now are not counted.
fn first_in_excess(conn: &mut AnyConnection, status: TaskStatus, most: i64) -> StoreResult<Option<PrunePlace>> {
    use task_queue::dsl;
    let now: SqlMoment = diesel::select(db_now()).get_result(conn)?;
    let found: Option<(Option<SqlMoment>, i64)> = dsl::task_queue
        .filter(dsl::last_status.eq(status.as_str()))
        .filter(dsl::finished.eq(FINISHED))
        .filter(dsl::status_on.le(now))
        .select((dsl::status_on, dsl::id))
        .offset(most)
        .limit(1)
        .order((dsl::last_status.desc(), dsl::finished.desc(), dsl::status_on.desc(), dsl::id.desc()))
        .first(conn)
        .optional()?;
    Ok(found.and_then(|(on, id)| Some(PrunePlace(on?, id))))
}

/// Loads the next tasks that finished at or before a position in the order of StatusOn.
fn load_window(
    conn: &mut AnyConnection,
    rule: &PruneRule,
    from: Option<PrunePlace>,
    until: PrunePlace,
    window: &mut PruneWindow,
) -> StoreResult<Vec<PruneCandidate>> {
    let rows = load_candidates(conn, rule, from, until.0)?;
    let is_last = i64::try_from(rows.len()).unwrap_or(i64::MAX) < WINDOW;
    let next = if is_last { None } else { rows.last().and_then(|row| next_place(rule, row)) };
    let is_reached = |row: &PruneCandidate| rule.is_of(row) && rule.place_of(row).is_some_and(|place| place <= until);
    let found: Vec<PruneCandidate> = rows.into_iter().filter(is_reached).collect();
    let kept = find_kept(conn, &found)?;
    let going: Vec<PruneCandidate> = found.into_iter().filter(|row| !kept.contains_key(&row.id)).collect();
    let (ids, seen_on) = (going.iter().map(|row| row.id).collect(), going.iter().map(|row| row.updated_on).max());
    *window = PruneWindow { ids, seen_on, next, ..PruneWindow::default() };
    Ok(going)
}

/// Returns the end of the retention that the class of this task states, if its row does not have it yet; `Some(None)` means no
/// limit.
fn stated_end(row: &PruneCandidate, keep_of: &KeepOfClass) -> Option<Option<DateTime<Utc>>> {
    let secs = keep_of(&row.task_class).task_secs?;
    let end = |status_on| DateTime::from(status_on).checked_add_signed(TimeDelta::seconds(i64::from(secs)));
    Some(row.status_on.filter(|_| secs > 0).and_then(end))
}

/// Loads tasks by StatusOn, in the part of its index that has only finished tasks, with those that keep their key after all
/// others. Tasks that must be kept are thus not scanned each time. For a class, which only an operator gives, uses the index of
/// classes, finished or not. That index lacks StatusOn, so without a limit one statement could read all tasks of the class to
/// find a few.
fn load_candidates(
    conn: &mut AnyConnection,
    rule: &PruneRule,
    from: Option<PrunePlace>,
    until: SqlMoment,
) -> StoreResult<Vec<PruneCandidate>> {
    use task_queue::dsl;
    if rule.has_expired {
        return load_expired(conn, rule, from, until);
    }
    let mut query = dsl::task_queue
        .filter(dsl::last_status.eq(rule.status.as_str()))
        .limit(WINDOW)
        .select(PruneCandidate::as_select())
        .into_boxed();
    if let Some(class) = &rule.class {
        // Also at the beginning: MariaDB uses the row estimate of this range to choose between two indexes with the right order.
        let PrunePlace(on, id) = from.unwrap_or_else(|| PrunePlace(SqlMoment::beginning(), 0));
        query = query
            .filter(dsl::task_class.eq(class))
            // The first condition determines where the scan of the index begins.
            .filter(dsl::scheduled_on.ge(shortest(on)))
            .filter(dsl::scheduled_on.gt(any_year(on)).or(dsl::id.gt(id)));
        // The order names all columns of the index, as in `load_part`.
        query = query.order((dsl::task_class, dsl::last_status, dsl::scheduled_on, dsl::id));
    } else {
        query = query.filter(dsl::finished.eq(FINISHED)).filter(dsl::status_on.le(any_year(until).nullable()));
        if let Some(PrunePlace(on, id)) = from {
            query = query
                .filter(dsl::status_on.ge(shortest(on).nullable()))
                .filter(dsl::status_on.gt(any_year(on).nullable()).or(dsl::id.gt(id)));
        }
        query = query.order((dsl::last_status, dsl::finished, dsl::status_on, dsl::id));
    }
    Ok(query.load(conn)?)
}

/// Loads tasks whose stated retention has expired: the index contains only tasks with a stated retention.
fn load_expired(
    conn: &mut AnyConnection,
    rule: &PruneRule,
    from: Option<PrunePlace>,
    until: SqlMoment,
) -> StoreResult<Vec<PruneCandidate>> {
    use task_queue::dsl;
    let PrunePlace(on, id) = from.unwrap_or_else(|| PrunePlace(SqlMoment::beginning(), 0));
    let mut query = dsl::task_queue
        .filter(dsl::expires_on.le(any_year(until).nullable()))
        .filter(dsl::expires_on.ge(shortest(on).nullable()))
        .filter(dsl::expires_on.gt(any_year(on).nullable()).or(dsl::id.gt(id)))
        // Not `=`: SQLite has no statistics, and would read all tasks of the status through their index.
        .filter(dsl::last_status.like(rule.status.as_str()))
        .order((dsl::expires_on, dsl::id))
        .limit(WINDOW)
        .select(PruneCandidate::as_select())
        .into_boxed();
    if let Some(class) = &rule.class {
        query = query.filter(dsl::task_class.eq(class));
    }
    Ok(query.load(conn)?)
}

/// Records an event with the number of rows that this transaction has deleted.
fn keep_count(conn: &mut AnyConnection, kept: Option<&NewEvent>, what: &str, count: usize) -> StoreResult<()> {
    let Some(event) = kept.filter(|_| count > 0) else { return Ok(()) };
    insert_event(conn, &event.with_details(serde_json::json!({ what: count })))
}

/// Deletes these tasks, which this transaction has locked and found prunable.
fn delete_tasks(conn: &mut AnyConnection, ids: &[i64], kept: Option<&NewEvent>) -> StoreResult<usize> {
    let deleted = diesel::delete(task_queue::table.filter(task_queue::id.eq_any(ids))).execute(conn)?;
    fault_point!("prune.tasks_deleted");
    delete_what_belongs_to(conn, ids)?;
    keep_count(conn, kept, "tasks", deleted)?;
    fault_point!("prune.before_commit");
    Ok(deleted)
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

/// Returns the oldest runs with captured output that ended before the limit.
fn old_runs_with_output(conn: &mut AnyConnection, limit: SqlMoment) -> StoreResult<Vec<i64>> {
    use task_queue_run_outputs::dsl;
    // The output of runs in progress is kept, however long they run.
    let processing = task_queue_runs::table.filter(task_queue_runs::running_class.is_not_null());
    let processing: Vec<i64> = processing.select(task_queue_runs::id).load(conn)?;
    let oldest = |most: i64| {
        let of_others = dsl::task_queue_run_outputs.filter(dsl::run_id.ne_all(processing.clone()));
        of_others.order((dsl::run_id, dsl::stream)).limit(most).select(dsl::run_id)
    };
    // Runs end roughly in the order of their ids: if the first one is recent, all are.
    let first: Vec<i64> = oldest(1).load(conn)?;
    if old_runs(conn, &first, limit)?.is_empty() {
        return Ok(Vec::new());
    }
    let mut runs: Vec<i64> = oldest(WINDOW).load(conn)?;
    runs.dedup();
    old_runs(conn, &runs, limit)
}

/// Returns those of these runs that ended before the limit or were deleted.
fn old_runs(conn: &mut AnyConnection, ids: &[i64], limit: SqlMoment) -> StoreResult<Vec<i64>> {
    use task_queue_runs::dsl;
    let known: Vec<(i64, Option<SqlMoment>)> =
        dsl::task_queue_runs.filter(dsl::id.eq_any(ids)).select((dsl::id, dsl::finished_on)).load(conn)?;
    let is_kept = |id: &i64| known.iter().any(|(known, on)| known == id && on.is_none_or(|on| on >= limit));
    Ok(ids.iter().copied().filter(|id| !is_kept(id)).collect())
}
