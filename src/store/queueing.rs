//! New tasks, with what they wait for, in one transaction: all or none.

use std::collections::{BTreeSet, HashMap};

use diesel::result::QueryResult;

use super::audit::keep_queued;
use super::backend::{self, AnyConnection};
use super::dependencies::IDS_PER_STATEMENT;
use super::rows::{DependencyRow, NewTaskRow};
use super::{Store, StoreError, StoreResult};
use crate::domain::dependencies::Prerequisite;
use crate::domain::ids::TaskId;
use crate::domain::new_task::{NewTask, QueueRefusal};
use crate::domain::status::TaskStatus;

/// Rows between two calls of `inserted`.
const PART: usize = 10_000;

impl Store {
    /// Inserts all tasks or none, and returns their ids in the order given. Calls `inserted` with the number of rows
    /// after each part of a long batch.
    ///
    /// # Errors
    /// [`StoreError::NotQueued`], or the database refused a row or could not be written; nothing is inserted then.
    pub fn insert_tasks(&mut self, tasks: &[NewTask], inserted: &mut dyn FnMut(usize)) -> StoreResult<Vec<TaskId>> {
        let auditor = self.auditor()?;
        let inserted_ids = self.write_once(|conn| {
            let prerequisites = Prerequisites::lock(conn, tasks)?;
            let mut ids = Vec::with_capacity(tasks.len());
            for part in tasks.chunks(PART) {
                let rows: Vec<NewTaskRow> =
                    part.iter().map(|task| NewTaskRow::new(task, prerequisites.open_count(task))).collect();
                let new = backend::insert_tasks(conn, &rows)?;
                if let Some(origin) = &auditor {
                    keep_queued(conn, origin, &new)?;
                }
                ids.extend(new.into_iter().map(TaskId));
                inserted(ids.len());
                fault_point!("queue.part_inserted");
            }
            insert_dependencies(conn, tasks, &ids, &prerequisites)?;
            fault_point!("queue.before_commit");
            Ok(ids)
        })?;
        fault_point!("queue.committed");
        Ok(inserted_ids)
    }
}

/// The tasks of the store for which new ones are to wait, held as they are until the transaction ends.
struct Prerequisites {
    /// Whether each has succeeded.
    has_succeeded: HashMap<i64, bool>,
}

impl Prerequisites {
    /// Locks their rows in the order of their ids: none of them can succeed unnoticed before the new tasks are there.
    fn lock(conn: &mut AnyConnection, tasks: &[NewTask]) -> StoreResult<Self> {
        let ids: BTreeSet<i64> = tasks.iter().flat_map(|task| &task.after).filter_map(stored_id).collect();
        let ids: Vec<i64> = ids.into_iter().collect();
        let mut has_succeeded = HashMap::with_capacity(ids.len());
        for part in ids.chunks(IDS_PER_STATEMENT) {
            for (id, status) in backend::lock_prerequisites(conn, part)? {
                has_succeeded.insert(id, status == TaskStatus::Success.as_str());
            }
        }
        let found = Self { has_succeeded };
        match tasks.iter().enumerate().find_map(|(index, task)| Some((index, found.first_missing(task)?))) {
            Some((index, id)) => Err(StoreError::NotQueued { index, refusal: QueueRefusal::NoSuchTask(id) }),
            None => Ok(found),
        }
    }

    fn first_missing(&self, task: &NewTask) -> Option<TaskId> {
        task.after.iter().filter_map(stored_id).find(|id| !self.has_succeeded.contains_key(id)).map(TaskId)
    }

    fn is_satisfied(&self, prerequisite: &Prerequisite) -> bool {
        stored_id(prerequisite).is_some_and(|id| self.has_succeeded.get(&id) == Some(&true))
    }

    /// What WaitingFor of a new task is.
    fn open_count(&self, task: &NewTask) -> i32 {
        let open = distinct(task).into_iter().filter(|prerequisite| !self.is_satisfied(prerequisite)).count();
        i32::try_from(open).unwrap_or(i32::MAX)
    }
}

const fn stored_id(prerequisite: &Prerequisite) -> Option<i64> {
    match prerequisite {
        Prerequisite::Task(id) => Some(id.0),
        Prerequisite::InBatch(_) => None,
    }
}

fn distinct(task: &NewTask) -> BTreeSet<Prerequisite> {
    task.after.iter().copied().collect()
}

fn insert_dependencies(
    conn: &mut AnyConnection,
    tasks: &[NewTask],
    ids: &[TaskId],
    prerequisites: &Prerequisites,
) -> QueryResult<()> {
    let mut rows = Vec::new();
    for (task, id) in tasks.iter().zip(ids) {
        for prerequisite in distinct(task) {
            let depends_on = match prerequisite {
                Prerequisite::Task(stored) => Some(stored),
                Prerequisite::InBatch(place) => ids.get(place).copied(),
            };
            rows.extend(depends_on.map(|depends_on| DependencyRow {
                task_id: id.0,
                depends_on_id: depends_on.0,
                is_satisfied: prerequisites.is_satisfied(&prerequisite),
            }));
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    backend::insert_dependencies(conn, &rows)?;
    fault_point!("queue.dependencies_inserted");
    Ok(())
}
