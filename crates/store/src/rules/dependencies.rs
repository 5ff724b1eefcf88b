//! TaskQueueDependencies: the prerequisites of tasks. A dependency is satisfied once, by the success of its prerequisite or, without
//! NeedsSuccess, by its end in any way, and stays satisfied; WaitingFor of a task counts the unsatisfied ones.

use std::collections::{BTreeSet, HashMap};

use diesel::prelude::*;
use diesel::result::QueryResult;
use diesel::sql_types::Bool;

use crate::backend;
use crate::base::connection::AnyConnection;
use crate::base::rows::{DependencyRow, PrerequisiteRow};
use crate::base::schema::task_queue;
use crate::base::schema::task_queue_dependencies::dsl::{
    depends_on_id, is_satisfied, needs_success, task_id, task_queue_dependencies,
};
use crate::base::sql::{SqlMoment, allowed_retries, db_now};
use crate::base::unmarked::{processed_run, status_in_process};
use crate::{Store, StoreResult};
use taskqueue_domain::run::status::{Stored, TaskStatus};
use taskqueue_domain::task::dependencies::LinkedTask;
use taskqueue_domain::task::ids::TaskId;

/// The maximum number of ids in one statement.
pub(crate) const IDS_PER_STATEMENT: usize = 1_000;

/// Satisfies the dependencies on a task that has just finished, whose row this transaction holds; without a success, only those
/// that need none. A transaction that queues a dependant locks that row first, so each dependency is either found here or was
/// satisfied from the start.
pub(crate) fn satisfy_dependants(conn: &mut AnyConnection, prerequisite: i64, has_succeeded: bool) -> QueryResult<()> {
    let of_it = task_queue_dependencies.filter(depends_on_id.eq(prerequisite)).filter(is_satisfied.eq(false));
    let of_it = of_it.filter(needs_success.eq(false).or(has_succeeded.into_sql::<Bool>()));
    let waiting: Vec<i64> = of_it.order((depends_on_id, task_id)).select(task_id).load(conn)?;
    for part in waiting.chunks(IDS_PER_STATEMENT) {
        // Two prerequisites that succeed at the same moment may have the same dependants.
        backend::lock_tasks(conn, part)?;
        diesel::update(task_queue::table)
            .filter(task_queue::id.eq_any(part))
            .filter(task_queue::waiting_for.gt(0))
            .set((task_queue::waiting_for.eq(task_queue::waiting_for - 1), task_queue::updated_on.eq(db_now())))
            .execute(conn)?;
        diesel::update(task_queue_dependencies)
            .filter(depends_on_id.eq(prerequisite))
            .filter(task_id.eq_any(part))
            .set(is_satisfied.eq(true))
            .execute(conn)?;
        fault_point!("end.dependants_satisfied");
    }
    Ok(())
}

/// The open prerequisites of a task, locked until the transaction ends.
pub(crate) struct OpenPrerequisites {
    /// Its dependencies. One is satisfied if the prerequisite has finished since.
    found: Vec<DependencyRow>,
}

impl OpenPrerequisites {
    /// Locks their rows in the order of their ids: none can finish unnoticed before another task waits for them too. Must come
    /// before the dependant's row is changed, because a transaction that ends one of them holds its row and then locks the
    /// dependant's row.
    pub(crate) fn lock(conn: &mut AnyConnection, dependant: i64) -> QueryResult<Self> {
        let of_it = task_queue_dependencies.filter(task_id.eq(dependant)).filter(is_satisfied.eq(false));
        let edges: Vec<(i64, bool)> =
            of_it.order((task_id, depends_on_id)).select((depends_on_id, needs_success)).load(conn)?;
        let mut found = Vec::with_capacity(edges.len());
        for part in edges.chunks(IDS_PER_STATEMENT) {
            let ids: Vec<i64> = part.iter().map(|(id, _)| *id).collect();
            let rows: HashMap<i64, PrerequisiteRow> =
                backend::lock_prerequisites(conn, &ids)?.into_iter().map(|row| (row.id, row)).collect();
            found.extend(part.iter().map(|&(id, by_success)| DependencyRow {
                task_id: dependant,
                depends_on_id: id,
                is_satisfied: rows.get(&id).is_some_and(|row| row.satisfies(by_success)),
                needs_success: by_success,
            }));
        }
        Ok(Self { found })
    }

    /// Returns WaitingFor of a task that waits for them.
    pub(crate) fn open_count(&self) -> i32 {
        let open = self.found.iter().filter(|prerequisite| !prerequisite.is_satisfied).count();
        i32::try_from(open).unwrap_or(i32::MAX)
    }

    /// Makes another task wait for them.
    pub(crate) fn insert_for(&self, conn: &mut AnyConnection, dependant: i64) -> QueryResult<()> {
        if self.found.is_empty() {
            return Ok(());
        }
        let row = |found: &DependencyRow| DependencyRow { task_id: dependant, ..*found };
        backend::insert_dependencies(conn, &self.found.iter().map(row).collect::<Vec<_>>())
    }
}

/// Returns all tasks reachable from these, without these.
fn follow(from: &[TaskId], mut step: impl FnMut(&[i64]) -> QueryResult<Vec<i64>>) -> QueryResult<Vec<TaskId>> {
    let mut seen: BTreeSet<i64> = from.iter().map(|id| id.0).collect();
    let mut found = BTreeSet::new();
    let mut newest: Vec<i64> = seen.iter().copied().collect();
    while !newest.is_empty() {
        let mut next = Vec::new();
        for part in newest.chunks(IDS_PER_STATEMENT) {
            next.extend(step(part)?.into_iter().filter(|id| seen.insert(*id)));
        }
        found.extend(next.iter().copied().map(TaskId));
        newest = next;
    }
    Ok(found.into_iter().collect())
}

/// Returns up to `limit` unsatisfied dependencies of these tasks.
fn open_edges(conn: &mut AnyConnection, tasks: &[i64], limit: i64) -> QueryResult<Vec<(i64, i64)>> {
    let open = task_queue_dependencies.filter(task_id.eq_any(tasks)).filter(is_satisfied.eq(false));
    open.order((task_id, depends_on_id)).limit(limit).select((task_id, depends_on_id)).load(conn)
}

/// Returns the cycle from `start` to `last` and back to `start`, in which each task waits for the next. `dependant_of` maps a
/// task to one that waits for it.
fn way_to(start: i64, last: i64, dependant_of: &HashMap<i64, i64>) -> Vec<TaskId> {
    let back = std::iter::successors(Some(last), |id| dependant_of.get(id).copied());
    let mut way: Vec<TaskId> = [start].into_iter().chain(back).map(TaskId).collect();
    way.reverse();
    way
}

/// The other side of a dependency, whether it is satisfied and needs a success, and the row of the other side, if it exists.
type Link = (i64, bool, bool, Option<(String, String, i32, i32, Option<SqlMoment>, Option<i64>)>);

fn linked((id, satisfied, by_success, row): Link) -> LinkedTask {
    let unknown = LinkedTask {
        id: TaskId(id),
        class: None,
        status: None,
        is_settled: true,
        is_satisfied: satisfied,
        needs_success: by_success,
    };
    let Some((class, status, failed, max, quarantined, processed_run)) = row else { return unknown };
    if let Some(status) = status_in_process(&status).filter(|_| processed_run.is_some()) {
        let status = Some(Stored::Known(status));
        return LinkedTask { class: Some(class), status, is_settled: false, ..unknown };
    }
    let is_done = TaskStatus::parse(&status).is_some_and(TaskStatus::is_done);
    let has_failed = [TaskStatus::Failed, TaskStatus::Timeout].map(TaskStatus::as_str).contains(&status.as_str());
    let is_settled = is_done || has_failed && (failed >= max || quarantined.is_some());
    LinkedTask { class: Some(class), status: Some(status.into()), is_settled, ..unknown }
}

/// The columns shown of the other side.
macro_rules! link_columns {
    () => {
        (
            task_queue::task_class,
            task_queue::last_status,
            task_queue::failed_retries,
            allowed_retries(),
            task_queue::quarantined_on,
            processed_run(),
        )
            .nullable()
    };
}

impl Store {
    /// Returns the first `limit` tasks that must succeed or finish before this one runs, by id; with `only_open`, those that have
    /// not yet.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_prerequisites(
        &mut self,
        dependant: TaskId,
        only_open: bool,
        limit: i64,
    ) -> StoreResult<Vec<LinkedTask>> {
        self.read_each(linked, |conn| {
            let of_task = task_queue_dependencies
                .left_join(task_queue::table.on(task_queue::id.eq(depends_on_id)))
                .filter(task_id.eq(dependant.0))
                .filter(is_satisfied.eq(false).or(is_satisfied.eq(!only_open)));
            of_task
                .order((task_id, depends_on_id))
                .limit(limit)
                .select((depends_on_id, is_satisfied, needs_success, link_columns!()))
                .load(conn)
        })
    }

    /// Returns the tasks that still wait for these, directly or indirectly, without these.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_all_dependants(&mut self, prerequisites: &[TaskId]) -> StoreResult<Vec<TaskId>> {
        self.read(|conn| {
            let waiting = |part: &[i64]| {
                let of_part = task_queue_dependencies.filter(depends_on_id.eq_any(part)).filter(is_satisfied.eq(false));
                of_part.select(task_id).load(conn)
            };
            Ok(follow(prerequisites, waiting)?)
        })
    }

    /// Returns the tasks for which these still wait, directly or indirectly, without these.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_all_prerequisites(&mut self, dependants: &[TaskId]) -> StoreResult<Vec<TaskId>> {
        self.read(|conn| {
            let awaited = |part: &[i64]| {
                let of_part = task_queue_dependencies.filter(task_id.eq_any(part)).filter(is_satisfied.eq(false));
                of_part.select(depends_on_id).load(conn)
            };
            Ok(follow(dependants, awaited)?)
        })
    }

    /// Returns a cycle of tasks, beginning and ending with this one, in which each still waits for the next: none of them can
    /// run. Reads at most `max_edges` dependencies, nearest first.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn find_circle_of(&mut self, start: TaskId, max_edges: i64) -> StoreResult<Option<Vec<TaskId>>> {
        self.read(|conn| {
            let (mut dependant_of, mut newest, mut edges_left) = (HashMap::new(), vec![start.0], max_edges);
            while !newest.is_empty() && edges_left > 0 {
                let edges = open_edges(conn, &newest, edges_left)?;
                edges_left -= i64::try_from(edges.len()).unwrap_or(i64::MAX);
                newest.clear();
                for (dependant, prerequisite) in edges {
                    if prerequisite == start.0 {
                        return Ok(Some(way_to(start.0, dependant, &dependant_of)));
                    }
                    dependant_of.entry(prerequisite).or_insert_with(|| {
                        newest.push(prerequisite);
                        dependant
                    });
                }
            }
            Ok(None)
        })
    }

    /// Returns the first `limit` tasks that wait or waited for this one, by id.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_dependants(&mut self, prerequisite: TaskId, limit: i64) -> StoreResult<Vec<LinkedTask>> {
        self.read_each(linked, |conn| {
            let of_task = task_queue_dependencies
                .left_join(task_queue::table.on(task_queue::id.eq(task_id)))
                .filter(depends_on_id.eq(prerequisite.0));
            of_task
                .order((depends_on_id, task_id))
                .limit(limit)
                .select((task_id, is_satisfied, needs_success, link_columns!()))
                .load(conn)
        })
    }
}
