//! Exports tasks with all related rows and imports them into another store, of any engine. Columns that the database computes are
//! not exported, nor are runners, leases and tokens: exported tasks have no open run.

use std::collections::HashMap;

use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use serde::{Deserialize, Serialize};

use crate::backend;
use crate::base::cells::{Maybe, ShownText, TimeOrPast};
use crate::base::connection::AnyConnection;
use crate::base::schema::{
    task_queue, task_queue_dependencies, task_queue_events, task_queue_rejections, task_queue_run_outputs,
    task_queue_runs,
};
use crate::base::sql::{SqlMoment, any_year, db_now};
use crate::journal::events::{NewEvent, insert_event};
use crate::records::tasks::{plan_task, set_start_before};
use crate::rules::unique::find_holder;
use crate::{EachPart, Store, StoreError, StoreResult};
use taskqueue_domain::run::status::{RunStatus, TaskStatus};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::time::recurrence::Overlap;

mod export;

pub use self::export::ExportedTask;

/// A task, its runs and its events.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferredTask {
    /// Its row.
    task: TaskColumns,
    /// Its runs, oldest first.
    #[serde(default)]
    runs: Vec<TransferredRun>,
    /// Its events, oldest first.
    #[serde(default)]
    events: Vec<EventColumns>,
    /// Its dependencies on prerequisites.
    #[serde(default)]
    after: Vec<DependencyColumns>,
    /// The claimants that have rejected it.
    #[serde(default)]
    rejections: Vec<RejectionColumns>,
}

/// A run and its captured output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TransferredRun {
    /// The row.
    run: RunColumns,
    /// Its captured output.
    #[serde(default)]
    outputs: Vec<OutputColumns>,
}

/// A row of TaskQueue: the columns of docs/schema.md.
#[derive(Clone, Debug, Queryable, Selectable, Insertable, Serialize, Deserialize)]
#[diesel(table_name = task_queue)]
#[serde(deny_unknown_fields)]
struct TaskColumns {
    /// Id
    #[diesel(skip_insertion)]
    id: i64,
    queued_on: SqlMoment,
    queued_by_id: String,
    scheduled_on: SqlMoment,
    next_attempt_on: Option<SqlMoment>,
    start_before: Option<SqlMoment>,
    /// TaskClass
    task_class: String,
    task_data: String,
    /// LastStatus
    last_status: String,
    max_retries: Option<i32>,
    retry_limit: Option<i32>,
    failed_retries: i32,
    attempts: i32,
    priority: i32,
    timeout_secs: Option<i32>,
    waiting_for: i32,
    backoff: Option<String>,
    crashes: i32,
    quarantined_on: Option<SqlMoment>,
    unique_key: Option<String>,
    unique_until: Option<SqlMoment>,
    limit_key: Option<String>,
    tag: Option<String>,
    name: Option<String>,
    parent_id: Option<i64>,
    keep_secs: Option<i32>,
    class_keep_secs: Option<i32>,
    keep_results_secs: Option<i32>,
    meta: Option<String>,
    recurrence: Option<String>,
    time_zone: String,
    catch_up: String,
    #[serde(default = "wait")]
    overlap: String,
    schedule_id: Option<i64>,
    planned_on: Option<SqlMoment>,
    schedule_status: String,
    updated_on: SqlMoment,
}

/// Returns the default of the column Overlap, which older exports do not contain.
fn wait() -> String {
    Overlap::default().to_string()
}

/// A row of TaskQueueRuns.
#[derive(Clone, Debug, Queryable, Selectable, Insertable, Serialize, Deserialize)]
#[diesel(table_name = task_queue_runs)]
#[serde(deny_unknown_fields)]
struct RunColumns {
    /// Id
    #[diesel(skip_insertion)]
    id: i64,
    #[serde(skip)]
    task_queue_id: i64,
    #[diesel(deserialize_as = ShownText)]
    task_class: String,
    priority: i32,
    attempt: i32,
    #[diesel(deserialize_as = TimeOrPast)]
    created_on: SqlMoment,
    #[diesel(deserialize_as = Maybe<TimeOrPast>)]
    started_on: Option<SqlMoment>,
    percents_completed: i32,
    #[diesel(deserialize_as = ShownText)]
    progress_message: String,
    #[diesel(deserialize_as = Maybe<TimeOrPast>)]
    finished_on: Option<SqlMoment>,
    #[diesel(deserialize_as = Maybe<ShownText>)]
    results: Option<String>,
    /// Status
    status: String,
    #[diesel(deserialize_as = ShownText)]
    error_code: String,
    #[diesel(deserialize_as = ShownText)]
    error_message: String,
    #[diesel(deserialize_as = ShownText)]
    decision: String,
    process_id: Option<i64>,
    #[diesel(deserialize_as = Maybe<ShownText>)]
    claimant: Option<String>,
    #[diesel(deserialize_as = ShownText)]
    host: String,
    #[diesel(deserialize_as = ShownText)]
    process_identity: String,
    handler_process_id: Option<i64>,
    #[diesel(deserialize_as = ShownText)]
    handler_identity: String,
    cpu_msecs: Option<i64>,
    peak_memory_bytes: Option<i64>,
    keep_results_secs: Option<i32>,
    #[diesel(deserialize_as = TimeOrPast)]
    updated_on: SqlMoment,
}

/// A row of TaskQueueRunOutputs.
#[derive(Clone, Debug, Queryable, Selectable, Insertable, Serialize, Deserialize)]
#[diesel(table_name = task_queue_run_outputs)]
#[serde(deny_unknown_fields)]
struct OutputColumns {
    #[serde(skip)]
    run_id: i64,
    stream: String,
    #[diesel(deserialize_as = ShownText)]
    content: String,
    total_bytes: i64,
    is_lossy: bool,
}

/// A row of TaskQueueEvents.
#[derive(Clone, Debug, Queryable, Selectable, Insertable, Serialize, Deserialize)]
#[diesel(table_name = task_queue_events)]
#[serde(deny_unknown_fields)]
struct EventColumns {
    #[serde(skip)]
    task_queue_id: Option<i64>,
    run_id: Option<i64>,
    #[diesel(deserialize_as = TimeOrPast)]
    occurred_on: SqlMoment,
    #[diesel(deserialize_as = ShownText)]
    kind: String,
    #[diesel(deserialize_as = ShownText)]
    actor: String,
    #[diesel(deserialize_as = ShownText)]
    host: String,
    #[diesel(deserialize_as = ShownText)]
    details: String,
}

/// A row of TaskQueueDependencies.
#[derive(Clone, Debug, Queryable, Selectable, Insertable, Serialize, Deserialize)]
#[diesel(table_name = task_queue_dependencies)]
#[serde(deny_unknown_fields)]
struct DependencyColumns {
    #[serde(skip)]
    task_id: i64,
    /// DependsOnId
    depends_on_id: i64,
    /// IsSatisfied
    is_satisfied: bool,
    /// NeedsSuccess
    needs_success: bool,
}

/// A dependency of a task that is not satisfied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenDependency {
    /// The prerequisite: its id in the source store.
    pub depends_on: i64,
    /// Whether only its success satisfies the dependency.
    pub needs_success: bool,
}

/// A row of TaskQueueRejections.
#[derive(Clone, Debug, Queryable, Selectable, Insertable, Serialize, Deserialize)]
#[diesel(table_name = task_queue_rejections)]
#[serde(deny_unknown_fields)]
struct RejectionColumns {
    #[serde(skip)]
    task_id: i64,
    #[diesel(deserialize_as = ShownText)]
    claimant: String,
    #[diesel(deserialize_as = TimeOrPast)]
    rejected_on: SqlMoment,
    #[serde(default)]
    timeouts: i32,
    #[diesel(deserialize_as = Maybe<TimeOrPast>)]
    held_until: Option<SqlMoment>,
}

impl TransferredTask {
    /// Returns its id in the source store.
    #[must_use]
    pub const fn id(&self) -> i64 {
        self.task.id
    }

    /// Returns its id and the ids of its runs in the source store.
    pub fn ids(&self) -> impl Iterator<Item = i64> {
        std::iter::once(self.task.id).chain(self.runs.iter().map(|whole| whole.run.id))
    }

    /// Returns TaskClass.
    #[must_use]
    pub fn class(&self) -> &str {
        &self.task.task_class
    }

    /// Returns LastStatus.
    #[must_use]
    pub fn status(&self) -> &str {
        &self.task.last_status
    }

    /// Sets LastStatus.
    pub fn set_status(&mut self, status: TaskStatus) {
        status.as_str().clone_into(&mut self.task.last_status);
    }

    /// Returns the dependencies that are not satisfied.
    pub fn waits_for(&self) -> impl Iterator<Item = OpenDependency> {
        let open = self.after.iter().filter(|edge| !edge.is_satisfied);
        open.map(|edge| OpenDependency { depends_on: edge.depends_on_id, needs_success: edge.needs_success })
    }

    /// Removes this task from its open prerequisites.
    pub fn satisfy(&mut self, prerequisite: i64) {
        for edge in self.after.iter_mut().filter(|edge| edge.depends_on_id == prerequisite) {
            edge.is_satisfied = true;
        }
    }

    /// Sets WaitingFor to the number of open prerequisites: its row may have been read before one of them succeeded.
    pub fn count_prerequisites(&mut self) {
        self.task.waiting_for = i32::try_from(self.waits_for().count()).unwrap_or(i32::MAX);
    }

    /// Returns true if it is settled: it will not run again unless retried.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        match TaskStatus::parse(&self.task.last_status) {
            Some(TaskStatus::Success | TaskStatus::Cancelled | TaskStatus::Expired) => true,
            Some(TaskStatus::Failed | TaskStatus::Timeout) => {
                let limit = self.task.retry_limit.or(self.task.max_retries);
                limit.is_some_and(|limit| self.task.failed_retries >= limit) || self.task.quarantined_on.is_some()
            }
            Some(TaskStatus::Scheduled) => self.task.quarantined_on.is_some(),
            Some(TaskStatus::Processing) | None => false,
        }
    }

    /// Returns the statuses of its runs, newest first.
    pub fn run_statuses(&self) -> impl Iterator<Item = Option<RunStatus>> {
        self.runs.iter().rev().map(|whole| RunStatus::parse(&whole.run.status))
    }

    /// Removes its waiting run, and releases the run in progress.
    pub fn end_open_runs(&mut self, decision: &str) {
        self.runs.retain(|whole| whole.run.status != RunStatus::Scheduled.as_str());
        let processing = self.runs.iter_mut().filter(|whole| whole.run.status == RunStatus::Processing.as_str());
        for run in processing.map(|whole| &mut whole.run) {
            RunStatus::Released.as_str().clone_into(&mut run.status);
            decision.clone_into(&mut run.decision);
            run.finished_on = Some(run.updated_on);
        }
    }
}

/// The result of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// The number of tasks.
    pub tasks: usize,
    /// The number of runs.
    pub runs: usize,
    /// Whether the original ids were kept, because the store was empty.
    pub keeps_ids: bool,
}

impl Store {
    /// Inserts all tasks of all parts or none, and records the event of the import. Tasks keep their ids in a store without
    /// tasks; otherwise they get new ids, and references to them are updated. Calls `imported` with the number of tasks in the
    /// transaction so far.
    ///
    /// # Errors
    /// The database rejected a row or could not be written; nothing is inserted then.
    pub fn import_tasks(
        &mut self,
        each_part: EachPart<'_, TransferredTask>,
        event: &NewEvent,
        imported: &mut dyn FnMut(usize),
    ) -> StoreResult<Imported> {
        self.write_once(|conn| {
            backend::enter_both_tables(conn)?;
            let mut ids = Ids::beginning(conn)?;
            let (mut tasks, mut runs, mut linked) = (0, 0, Vec::new());
            each_part(&mut |part| {
                for whole in part {
                    import_task(conn, &whole, &mut ids).map_err(|error| refused(tasks, &whole, error))?;
                    (tasks, runs) = (tasks + 1, runs + whole.runs.len());
                    imported(tasks);
                    if !whole.after.is_empty() || whole.task.schedule_id.is_some() {
                        let (id, schedule_id) = (whole.task.id, whole.task.schedule_id);
                        linked.push(Linked { id, schedule_id, after: whole.after });
                    }
                }
                Ok(())
            })?;
            import_dependencies(conn, &linked, &ids)?;
            mend_schedules(conn, &linked, &ids)?;
            if ids.keeps {
                backend::go_on_after_ids(conn)?;
            }
            let done = Imported { tasks, runs, keeps_ids: ids.keeps };
            insert_event(conn, &event.with_details(serde_json::json!(done)))?;
            fault_point!("import.before_commit");
            Ok(done)
        })
    }
}

/// A task that refers to other tasks, whose new ids are known after all inserts.
struct Linked {
    id: i64,
    schedule_id: Option<i64>,
    after: Vec<DependencyColumns>,
}

/// New ids by old ids.
struct Ids {
    /// Whether they are equal.
    keeps: bool,
    /// When the import began, by the database's clock.
    now: SqlMoment,
    tasks: HashMap<i64, i64>,
    /// The runs of the task that is being inserted.
    runs: HashMap<i64, i64>,
}

impl Ids {
    fn beginning(conn: &mut AnyConnection) -> StoreResult<Self> {
        let task: Option<i64> = task_queue::table.select(task_queue::id).first(conn).optional()?;
        let run: Option<i64> = task_queue_runs::table.select(task_queue_runs::id).first(conn).optional()?;
        let now = diesel::select(db_now()).get_result(conn)?;
        Ok(Self { keeps: task.is_none() && run.is_none(), now, tasks: HashMap::new(), runs: HashMap::new() })
    }
}

/// Describes rows that the tables reject, in the same words on every engine: the names of their constraints are sentences.
fn refused(index: usize, whole: &TransferredTask, error: StoreError) -> StoreError {
    let StoreError::Database(DieselError::DatabaseError(kind, info)) = &error else { return error };
    let (id, said) = (whole.id(), info.message());
    let rule = info.constraint_name().or_else(|| broken_rule(said));
    let problem = match (kind, rule, &whole.task.unique_key) {
        (DatabaseErrorKind::UniqueViolation, _, Some(key))
            if said.contains("LiveUniqueKey") || said.contains("TaskQueueUnique") =>
        {
            format!("task {id}: its key \"{key}\" is that of a live task")
        }
        (DatabaseErrorKind::UniqueViolation, ..) => format!("task {id} conflicts with an existing row: {said}"),
        (DatabaseErrorKind::CheckViolation | DatabaseErrorKind::Unknown, Some(rule), _) => {
            format!("task {id} breaks a rule of the tables: {rule}")
        }
        (DatabaseErrorKind::CheckViolation | DatabaseErrorKind::NotNullViolation, ..) => {
            format!("the database refused task {id}: {said}")
        }
        _ => return error,
    };
    StoreError::NotImported { index, problem }
}

/// Returns the name of the violated constraint from a message of SQLite, MySQL or MariaDB.
fn broken_rule(said: &str) -> Option<&str> {
    let between = |before: &str, after: &str| {
        let (_, rest) = said.split_once(before)?;
        rest.split_once(after).map(|(name, _)| name)
    };
    said.strip_prefix("CHECK constraint failed: ")
        .or_else(|| between("Check constraint '", "' is violated"))
        .or_else(|| between("CONSTRAINT `", "` failed for "))
}

fn import_task(conn: &mut AnyConnection, whole: &TransferredTask, ids: &mut Ids) -> StoreResult<()> {
    // The schedules are corrected when all ids are known.
    // A parent has a lower id than its children, so it is imported before them or not at all.
    let parent_id = whole.task.parent_id.and_then(|old| ids.tasks.get(&old).copied());
    let row = TaskColumns { schedule_id: None, parent_id, ..whole.task.clone() };
    // Times from 2038 on, which some engines do not accept in this form, are set separately.
    let (scheduled_on, planned_on, start_before) = (row.scheduled_on, row.planned_on, row.start_before);
    let next_attempt_on = row.next_attempt_on;
    // A window that is over keeps a key from no task, neither that of this task nor that of a task here.
    let unique_until = row.unique_until.filter(|until| until.0 > ids.now.0);
    if let Some(key) = &row.unique_key {
        find_holder(conn, &row.task_class, key)?;
    }
    let row = TaskColumns {
        scheduled_on: row.updated_on,
        planned_on: None,
        start_before: None,
        next_attempt_on: None,
        unique_until: None,
        ..row
    };
    let id = if ids.keeps {
        diesel::insert_into(task_queue::table).values((task_queue::id.eq(row.id), &row)).execute(conn)?;
        row.id
    } else {
        diesel::insert_into(task_queue::table).values(&row).execute(conn)?;
        backend::last_inserted_id(conn, "TaskQueue")?
    };
    plan_task(conn, TaskId(id), scheduled_on, planned_on)?;
    if start_before.is_some() {
        set_start_before(conn, TaskId(id), start_before)?;
    }
    if next_attempt_on.is_some() || unique_until.is_some() {
        diesel::update(task_queue::table.filter(task_queue::id.eq(id)))
            .set((
                next_attempt_on.map(|on| task_queue::next_attempt_on.eq(any_year(on).nullable())),
                unique_until.map(|on| task_queue::unique_until.eq(any_year(on).nullable())),
            ))
            .execute(conn)?;
    }
    ids.tasks.insert(whole.task.id, id);
    ids.runs.clear();
    for run in &whole.runs {
        import_run(conn, run, id, ids)?;
    }
    for rejection in &whole.rejections {
        let row = RejectionColumns { task_id: id, ..rejection.clone() };
        diesel::insert_into(task_queue_rejections::table).values(&row).execute(conn)?;
    }
    for event in &whole.events {
        let run_id = event.run_id.and_then(|old| ids.runs.get(&old).copied());
        let row = EventColumns { task_queue_id: Some(id), run_id, ..event.clone() };
        diesel::insert_into(task_queue_events::table).values(&row).execute(conn)?;
    }
    Ok(())
}

fn import_run(conn: &mut AnyConnection, whole: &TransferredRun, task_id: i64, ids: &mut Ids) -> StoreResult<()> {
    let row = RunColumns { task_queue_id: task_id, ..whole.run.clone() };
    let id = if ids.keeps {
        diesel::insert_into(task_queue_runs::table).values((task_queue_runs::id.eq(row.id), &row)).execute(conn)?;
        row.id
    } else {
        diesel::insert_into(task_queue_runs::table).values(&row).execute(conn)?;
        backend::last_inserted_id(conn, "TaskQueueRuns")?
    };
    ids.runs.insert(whole.run.id, id);
    for output in &whole.outputs {
        let row = OutputColumns { run_id: id, ..output.clone() };
        diesel::insert_into(task_queue_run_outputs::table).values(&row).execute(conn)?;
    }
    Ok(())
}

/// Dependencies on tasks that were not exported are dropped: no task has to wait for them.
fn import_dependencies(conn: &mut AnyConnection, tasks: &[Linked], ids: &Ids) -> StoreResult<()> {
    for task in tasks {
        let Some(task_id) = ids.tasks.get(&task.id) else { continue };
        for edge in &task.after {
            let Some(depends_on_id) = ids.tasks.get(&edge.depends_on_id) else { continue };
            let row = DependencyColumns { task_id: *task_id, depends_on_id: *depends_on_id, ..edge.clone() };
            diesel::insert_into(task_queue_dependencies::table).values(&row).execute(conn)?;
        }
    }
    Ok(())
}

/// Sets ScheduleId of imported tasks. A schedule whose first task was not exported gets the id of its first imported task.
fn mend_schedules(conn: &mut AnyConnection, tasks: &[Linked], ids: &Ids) -> StoreResult<()> {
    let mut names: HashMap<i64, i64> = HashMap::new();
    for task in tasks {
        let (Some(schedule), Some(id)) = (task.schedule_id, ids.tasks.get(&task.id)) else { continue };
        let first = if ids.keeps { schedule } else { ids.tasks.get(&schedule).copied().unwrap_or(*id) };
        let name = *names.entry(schedule).or_insert(first);
        diesel::update(task_queue::table.filter(task_queue::id.eq(id)))
            .set(task_queue::schedule_id.eq(name))
            .execute(conn)?;
    }
    Ok(())
}
