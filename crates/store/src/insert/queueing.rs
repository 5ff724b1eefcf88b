//! Inserts new tasks with their keys and prerequisites in one transaction: all or none.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chrono::DateTime;
use diesel::RunQueryDsl as _;
use diesel::result::QueryResult;

use crate::backend;
use crate::base::connection::AnyConnection;
use crate::base::new_task::NewTaskRow;
use crate::base::rows::{DependencyRow, PrerequisiteRow};
use crate::base::sql::{SqlMoment, db_now};
use crate::journal::audit::keep_queued;
use crate::rules::dependencies::IDS_PER_STATEMENT;
use crate::rules::unique::find_holder;
use crate::rules::visibility::visible_among;
use crate::transitions::{Replacer, replace_task};
use crate::{Store, StoreError, StoreResult};
use taskqueue_domain::task::choosing::visible_tasks::VisibleTasks;
use taskqueue_domain::task::dependencies::{Prerequisite, find_circle};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::new_task::{NewTask, QueueRefusal};
use taskqueue_domain::task::unique::{Arrival, OnConflict, QueuedTask, Uniqueness};

/// Rows between two calls of `inserted`.
const PART: usize = 10_000;

/// Passes the parts of a batch to a closure, from the first part on. Called again if the transaction is repeated.
pub type EachPart<'a, Item> = &'a mut dyn FnMut(&mut dyn FnMut(Vec<Item>) -> StoreResult<()>) -> StoreResult<()>;

/// The work that a batch needs before its first task is inserted.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchNeeds {
    replaces: bool,
    looks_up: bool,
}

impl BatchNeeds {
    /// Adds the needs of this task.
    pub fn add(&mut self, task: &NewTask) {
        self.replaces |= task.unique.as_ref().is_some_and(|key| key.on_conflict == OnConflict::Replace);
        // Tasks with a key or with prerequisites query other tasks before they are inserted.
        self.looks_up |= task.unique.is_some() || task.has_prerequisites();
    }

    fn of(tasks: &[NewTask]) -> Self {
        let mut needs = Self::default();
        tasks.iter().for_each(|task| needs.add(task));
        needs
    }

    fn enter(self, conn: &mut AnyConnection) -> StoreResult<()> {
        if self.replaces {
            backend::lock_gate(conn, "create-runs")?;
        }
        if self.looks_up {
            backend::enter_both_tables(conn)?;
        }
        Ok(())
    }
}

impl Store {
    /// Inserts all tasks or none, and returns them in the given order. A taken key is handled as its task specifies. Calls
    /// `inserted` with the number of rows after each part of a long batch.
    ///
    /// # Errors
    /// [`StoreError::NotQueued`], or the database rejected a row or could not be written; nothing is inserted then.
    pub fn insert_tasks(&mut self, tasks: &[NewTask], inserted: &mut dyn FnMut(usize)) -> StoreResult<Vec<QueuedTask>> {
        if let [task] = tasks
            && self.is_single(task)?
        {
            let id = self.insert_task(task)?;
            return Ok(vec![QueuedTask { id, arrival: Arrival::Queued }]);
        }
        let needs = BatchNeeds::of(tasks);
        self.insert(needs, &mut |conn, inserter| {
            inserter.insert(conn, tasks, inserted)?;
            Ok(())
        })
    }

    /// Same as [`Self::insert_tasks`], part by part, for tasks that do not wait for each other. Only one part is held in memory,
    /// and all are inserted in one transaction or none.
    ///
    /// # Errors
    /// As for [`Self::insert_tasks`], and the errors of `each_part`.
    pub fn insert_in_parts(
        &mut self,
        needs: BatchNeeds,
        each_part: EachPart<'_, NewTask>,
        inserted: &mut dyn FnMut(usize),
    ) -> StoreResult<Vec<QueuedTask>> {
        self.insert(needs, &mut |conn, inserter| {
            each_part(&mut |tasks| {
                let before = inserter.queued.len();
                inserter.insert(conn, &tasks, &mut |_| {})?;
                inserted(before + tasks.len());
                Ok(())
            })
        })
    }

    fn insert(
        &mut self,
        needs: BatchNeeds,
        work: &mut dyn FnMut(&mut AnyConnection, &mut Inserter<'_>) -> StoreResult<()>,
    ) -> StoreResult<Vec<QueuedTask>> {
        let auditor = self.auditor()?;
        let (origin, visible) = (self.origin.clone(), self.visible.clone());
        let mut freed_keys = BTreeSet::new();
        let queued = self.write_key_once(|conn| {
            let replacer = Replacer { origin: &origin, is_auditor: auditor.is_some() };
            let mut inserter =
                Inserter { replacer, visible: &visible, queued: Vec::new(), freed_keys: BTreeSet::new() };
            needs.enter(conn)?;
            work(conn, &mut inserter)?;
            fault_point!("queue.before_commit");
            freed_keys = inserter.freed_keys;
            Ok(inserter.queued)
        });
        let queued = queued.or_else(|error| Err(self.without_hidden_holder(error)?))?;
        fault_point!("queue.committed");
        for key in &freed_keys {
            // Errors are ignored: the tasks are queued, and `create-runs` assigns free slots.
            let _ = self.pass_key_slot_on(key);
        }
        Ok(queued)
    }
}

/// Inserts parts in order within a transaction.
struct Inserter<'a> {
    replacer: Replacer<'a>,
    visible: &'a VisibleTasks,
    queued: Vec<QueuedTask>,
    freed_keys: BTreeSet<String>,
}

impl Inserter<'_> {
    fn insert(
        &mut self,
        conn: &mut AnyConnection,
        tasks: &[NewTask],
        inserted: &mut dyn FnMut(usize),
    ) -> StoreResult<()> {
        let plan = InsertPlan::make(conn, tasks, self.replacer).map_err(|error| self.of_batch(error))?;
        let prerequisites = Prerequisites::lock(conn, &plan, self.visible).map_err(|error| self.of_batch(error))?;
        let new: Vec<usize> = plan.new_places().collect();
        let now = match tasks.iter().any(NewTask::needs_now) {
            true => diesel::select(db_now()).get_result::<SqlMoment>(conn)?.into(),
            false => DateTime::UNIX_EPOCH,
        };
        let mut ids = HashMap::with_capacity(new.len());
        for part in new.chunks(PART) {
            let rows: Vec<NewTaskRow> = part
                .iter()
                .map(|place| NewTaskRow::new(plan.content(*place), prerequisites.open_count(&plan.after(*place)), now))
                .collect();
            let inserted_ids = backend::insert_tasks(conn, &rows)?;
            if self.replacer.is_auditor {
                keep_queued(conn, self.replacer.origin, &inserted_ids)?;
            }
            ids.extend(part.iter().copied().zip(inserted_ids));
            inserted(ids.len());
            fault_point!("queue.part_inserted");
        }
        insert_dependencies(conn, &plan, &ids, &prerequisites)?;
        self.queued.extend(plan.queued(&ids));
        self.freed_keys.extend(plan.freed_keys);
        Ok(())
    }

    /// Converts an index within this part to an index within the batch. A key taken by an earlier part is reported as taken
    /// within the batch.
    fn of_batch(&self, error: StoreError) -> StoreError {
        let StoreError::NotQueued { index, refusal } = error else { return error };
        let is_here = |id: TaskId| self.queued.iter().any(|task| task.id == id && task.arrival == Arrival::Queued);
        let refusal = match refusal {
            QueueRefusal::KeyTaken { key, holder, .. } if is_here(holder) => QueueRefusal::KeyInBatch { key },
            other => other,
        };
        StoreError::NotQueued { index: self.queued.len() + index, refusal }
    }
}

/// The position of a task of the batch, or its existing task.
#[derive(Clone, Copy)]
enum Spot {
    New,
    There(QueuedTask),
    /// It equals an earlier task of the batch, which has its key.
    Same(usize, Arrival),
}

/// Which rows are inserted for which task of a batch.
struct InsertPlan<'a> {
    tasks: &'a [NewTask],
    spots: Vec<Spot>,
    /// Tasks that get data, times and numbers of a later task that replaces them.
    replaced_by: HashMap<usize, usize>,
    /// The limit keys whose slots the replaced tasks had.
    freed_keys: BTreeSet<String>,
}

impl<'a> InsertPlan<'a> {
    /// Finds the holders of all keys, and replaces those that are to be replaced.
    fn make(conn: &mut AnyConnection, tasks: &'a [NewTask], replacer: Replacer<'_>) -> StoreResult<Self> {
        let spots = Vec::with_capacity(tasks.len());
        let mut plan = Self { tasks, spots, replaced_by: HashMap::new(), freed_keys: BTreeSet::new() };
        let mut first_with = HashMap::new();
        for (place, task) in tasks.iter().enumerate() {
            let spot = match &task.unique {
                None => Spot::New,
                Some(unique) => match first_with.get(&(task.class.as_str(), unique.key.as_str())) {
                    Some(earlier) => plan.spot_beside(conn, *earlier, place, unique, replacer)?,
                    None => {
                        first_with.insert((task.class.as_str(), unique.key.as_str()), place);
                        plan.spot_in_store(conn, place, unique, replacer)?
                    }
                },
            };
            plan.spots.push(spot);
        }
        plan.check_circles()?;
        Ok(plan)
    }

    fn spot_in_store(
        &mut self,
        conn: &mut AnyConnection,
        place: usize,
        unique: &Uniqueness,
        replacer: Replacer<'_>,
    ) -> StoreResult<Spot> {
        let task = &self.tasks[place];
        let Some(holder) = find_holder(conn, task.class.as_str(), &unique.key)? else { return Ok(Spot::New) };
        fault_point!("queue.key_found");
        let there = |arrival| Ok(Spot::There(QueuedTask { id: holder.id, arrival }));
        // An existing one-time task does not satisfy a request for a schedule, and does not become one.
        match unique.on_conflict {
            OnConflict::Return if holder.recurs || task.recurrence.is_none() => return there(Arrival::Existing),
            OnConflict::Replace
                if !holder.recurs && replace_task(conn, holder.id, task, replacer, &mut self.freed_keys)? =>
            {
                return there(Arrival::Replaced);
            }
            OnConflict::Return | OnConflict::Replace | OnConflict::Fail => {}
        }
        // A task that could not be replaced may have been claimed since, or have ended.
        match find_holder(conn, task.class.as_str(), &unique.key)? {
            Some(holder) => Err(StoreError::NotQueued {
                index: place,
                refusal: QueueRefusal::KeyTaken { key: holder.key, holder: holder.id, status: holder.status },
            }),
            None => Ok(Spot::New),
        }
    }

    /// Handles a task whose key an earlier task of the batch has.
    fn spot_beside(
        &mut self,
        conn: &mut AnyConnection,
        earlier: usize,
        place: usize,
        unique: &Uniqueness,
        replacer: Replacer<'_>,
    ) -> StoreResult<Spot> {
        let [first_recurs, recurs] = [earlier, place].map(|place| self.tasks[place].recurrence.is_some());
        let refused = || {
            let refusal = QueueRefusal::KeyInBatch { key: unique.key.clone() };
            Err(StoreError::NotQueued { index: place, refusal })
        };
        match (unique.on_conflict, self.spots[earlier]) {
            (OnConflict::Return, _) if recurs && !first_recurs => refused(),
            (OnConflict::Replace, _) if first_recurs => refused(),
            (OnConflict::Return, _) => Ok(Spot::Same(earlier, Arrival::Existing)),
            (OnConflict::Replace, Spot::There(_)) => self.spot_in_store(conn, place, unique, replacer),
            (OnConflict::Replace, _) => {
                self.replaced_by.insert(earlier, place);
                Ok(Spot::Same(earlier, Arrival::Replaced))
            }
            (OnConflict::Fail, _) => refused(),
        }
    }

    /// Refuses cycles that arise because lines with the same key become one task.
    fn check_circles(&self) -> StoreResult<()> {
        if !self.spots.iter().any(|spot| matches!(spot, Spot::Same(..))) {
            return Ok(());
        }
        let in_batch = |place| match place {
            Prerequisite::InBatch(place) => Some(place),
            Prerequisite::Task(_) => None,
        };
        let is_new = |place: &usize| matches!(self.spots[*place], Spot::New);
        let after: Vec<Vec<usize>> =
            (0..self.tasks.len())
                .map(|place| {
                    if is_new(&place) {
                        self.after(place).into_keys().filter_map(in_batch).collect()
                    } else {
                        Vec::new()
                    }
                })
                .collect();
        match find_circle(&after) {
            Some(circle) => Err(StoreError::NotQueued { index: circle[0], refusal: QueueRefusal::CircleByKeys }),
            None => Ok(()),
        }
    }

    fn new_places(&self) -> impl Iterator<Item = usize> {
        (0..self.spots.len()).filter(|place| matches!(self.spots[*place], Spot::New))
    }

    fn content(&self, place: usize) -> &NewTask {
        &self.tasks[self.replaced_by.get(&place).copied().unwrap_or(place)]
    }

    /// Returns the distinct prerequisites of a new task, each with whether only its success is enough.
    fn after(&self, place: usize) -> BTreeMap<Prerequisite, bool> {
        let at_its_spot = |prerequisite: &Prerequisite| match *prerequisite {
            Prerequisite::InBatch(other) => match self.spots.get(other) {
                Some(Spot::There(queued)) => Prerequisite::Task(queued.id),
                Some(Spot::Same(first, _)) => match self.spots[*first] {
                    Spot::There(queued) => Prerequisite::Task(queued.id),
                    _ => Prerequisite::InBatch(*first),
                },
                _ => Prerequisite::InBatch(other),
            },
            stored => stored,
        };
        let task = &self.tasks[place];
        let any = task.after_any.iter().map(|prerequisite| (at_its_spot(prerequisite), false));
        // Of a task in both lists, the success is needed: the later entry counts.
        any.chain(task.after.iter().map(|prerequisite| (at_its_spot(prerequisite), true))).collect()
    }

    fn queued(&self, ids: &HashMap<usize, i64>) -> Vec<QueuedTask> {
        let id_at = |place: &usize| TaskId(ids.get(place).copied().unwrap_or_default());
        let queued = |(place, spot): (usize, &Spot)| match spot {
            Spot::New => QueuedTask { id: id_at(&place), arrival: Arrival::Queued },
            Spot::There(queued) => *queued,
            Spot::Same(first, arrival) => match self.spots[*first] {
                Spot::There(QueuedTask { id, .. }) => QueuedTask { id, arrival: *arrival },
                _ => QueuedTask { id: id_at(first), arrival: *arrival },
            },
        };
        self.spots.iter().enumerate().map(queued).collect()
    }
}

/// The stored prerequisites of new tasks, locked until the transaction ends.
struct Prerequisites {
    rows: HashMap<i64, PrerequisiteRow>,
}

impl Prerequisites {
    /// Locks their rows in the order of their ids: none can finish unnoticed before the new tasks are inserted. Those that do not
    /// exist for the caller are missing.
    fn lock(conn: &mut AnyConnection, plan: &InsertPlan<'_>, visible: &VisibleTasks) -> StoreResult<Self> {
        let waits = |place: &usize| plan.tasks[*place].has_prerequisites();
        let wanted: BTreeSet<(i64, usize)> = plan
            .new_places()
            .filter(waits)
            .flat_map(|place| plan.after(place).keys().filter_map(stored_id).map(|id| (id, place)).collect::<Vec<_>>())
            .collect();
        let mut ids: Vec<i64> = wanted.iter().map(|(id, _)| *id).collect();
        ids.dedup();
        let mut rows = HashMap::with_capacity(ids.len());
        for part in ids.chunks(IDS_PER_STATEMENT) {
            rows.extend(backend::lock_prerequisites(conn, part)?.into_iter().map(|row| (row.id, row)));
        }
        if *visible != VisibleTasks::All {
            let seen = visible_among(conn, visible, &ids)?;
            rows.retain(|id, _| seen.contains(id));
        }
        let missing = wanted.iter().filter(|(id, _)| !rows.contains_key(id)).min_by_key(|(_, place)| *place);
        match missing {
            Some((id, place)) => {
                Err(StoreError::NotQueued { index: *place, refusal: QueueRefusal::NoSuchTask(TaskId(*id)) })
            }
            None => Ok(Self { rows }),
        }
    }

    fn is_satisfied(&self, prerequisite: &Prerequisite, needs_success: bool) -> bool {
        stored_id(prerequisite).and_then(|id| self.rows.get(&id)).is_some_and(|row| row.satisfies(needs_success))
    }

    /// Returns WaitingFor of a new task.
    fn open_count(&self, after: &BTreeMap<Prerequisite, bool>) -> i32 {
        let open = after
            .iter()
            .filter(|(prerequisite, needs_success)| !self.is_satisfied(prerequisite, **needs_success))
            .count();
        i32::try_from(open).unwrap_or(i32::MAX)
    }
}

const fn stored_id(prerequisite: &Prerequisite) -> Option<i64> {
    match prerequisite {
        Prerequisite::Task(id) => Some(id.0),
        Prerequisite::InBatch(_) => None,
    }
}

fn insert_dependencies(
    conn: &mut AnyConnection,
    plan: &InsertPlan<'_>,
    ids: &HashMap<usize, i64>,
    prerequisites: &Prerequisites,
) -> QueryResult<()> {
    let mut rows = Vec::new();
    for place in plan.new_places() {
        for (prerequisite, needs_success) in plan.after(place) {
            let depends_on = match prerequisite {
                Prerequisite::Task(stored) => Some(stored.0),
                Prerequisite::InBatch(other) => ids.get(&other).copied(),
            };
            let pair = ids.get(&place).copied().zip(depends_on);
            rows.extend(pair.map(|(task_id, depends_on_id)| DependencyRow {
                task_id,
                depends_on_id,
                is_satisfied: prerequisites.is_satisfied(&prerequisite, needs_success),
                needs_success,
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
