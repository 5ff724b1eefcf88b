//! Reads tasks with all related rows.

use std::collections::HashMap;

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use serde::Serialize;

use super::{
    DependencyColumns, EventColumns, OutputColumns, RejectionColumns, RunColumns, TaskColumns, TransferredRun,
    TransferredTask,
};
use crate::base::connection::AnyConnection;
use crate::base::rows::TaskRow;
use crate::base::schema::{
    task_queue, task_queue_dependencies, task_queue_events, task_queue_rejections, task_queue_run_outputs,
    task_queue_runs,
};
use crate::{Store, StoreResult};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Task;
use taskqueue_domain::text::unreadable::{StoredText, Unreadable};

/// Tasks that are read together.
const PAGE: i64 = 500;
/// Ids in one statement.
const IDS_PER_STATEMENT: usize = 5_000;

impl Store {
    /// Returns the tasks after the one with this id, in the order of their ids, with all related rows: a few hundred, or none at
    /// the end.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn export_page(&mut self, after: i64) -> StoreResult<Vec<ExportedTask>> {
        // A row that is deleted or changed between two statements would be left out, or contradict its runs.
        self.read_snapshot(|conn| {
            let tasks = task_queue::table.filter(task_queue::id.gt(after)).order(task_queue::id).limit(PAGE);
            let ids: Vec<i64> = tasks.select(task_queue::id).load(conn)?;
            load_tasks(conn, &ids)
        })
    }

    /// Returns those of these tasks that exist, in the order of their ids, with all related rows; for a few hundred ids.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn export_tasks(&mut self, ids: &[TaskId]) -> StoreResult<Vec<ExportedTask>> {
        let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
        self.read_snapshot(|conn| load_tasks(conn, &ids))
    }
}

/// A task of an export.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum ExportedTask {
    /// A task with all related rows.
    Whole(Box<TransferredTask>),
    /// A task whose row cannot be read: no import accepts it.
    Unreadable {
        /// The task and its content.
        unreadable: UnreadableTask,
    },
}

/// A task whose row cannot be read.
#[derive(Clone, Debug, Serialize)]
pub struct UnreadableTask {
    id: TaskId,
    columns: Vec<UnreadableColumn>,
}

/// A column of an unreadable task, with its full content if it is text.
#[derive(Clone, Debug, Serialize)]
struct UnreadableColumn {
    #[serde(flatten)]
    column: Unreadable,
    raw_hex: Option<String>,
}

impl From<Task> for UnreadableTask {
    fn from(task: Task) -> Self {
        let with_all =
            |column: Unreadable| UnreadableColumn { raw_hex: column.text.as_ref().map(StoredText::hex), column };
        Self { id: task.id, columns: task.unreadable.into_iter().map(with_all).collect() }
    }
}

impl ExportedTask {
    /// Returns its id.
    #[must_use]
    pub fn id(&self) -> TaskId {
        match self {
            Self::Whole(whole) => TaskId(whole.id()),
            Self::Unreadable { unreadable } => unreadable.id,
        }
    }
}

/// Loads all at once, or one by one if a row among them cannot be read.
fn load_tasks(conn: &mut AnyConnection, ids: &[i64]) -> StoreResult<Vec<ExportedTask>> {
    let load = |conn: &mut AnyConnection, ids: &[i64]| {
        let tasks = task_queue::table.filter(task_queue::id.eq_any(ids.to_vec())).order(task_queue::id);
        tasks.select(TaskColumns::as_select()).load::<TaskColumns>(conn)
    };
    let mut unreadable = Vec::new();
    let tasks = match load(conn, ids) {
        Err(DieselError::DeserializationError(_)) => {
            let of_ids = task_queue::table.filter(task_queue::id.eq_any(ids.to_vec()));
            let rows: Vec<TaskRow> = of_ids.select(TaskRow::as_select()).load(conn)?;
            let (readable, others): (Vec<Task>, Vec<Task>) =
                rows.into_iter().map(Task::from).partition(|task| task.unreadable.is_empty());
            unreadable = others;
            load(conn, &readable.iter().map(|task| task.id.0).collect::<Vec<_>>())?
        }
        tasks => tasks?,
    };
    let whole = with_all_that_belongs_to_them(conn, tasks)?.into_iter().map(|task| ExportedTask::Whole(Box::new(task)));
    let unreadable =
        unreadable.into_iter().map(|task| ExportedTask::Unreadable { unreadable: UnreadableTask::from(task) });
    let mut exported: Vec<ExportedTask> = whole.chain(unreadable).collect();
    exported.sort_by_key(ExportedTask::id);
    Ok(exported)
}

fn with_all_that_belongs_to_them(
    conn: &mut AnyConnection,
    tasks: Vec<TaskColumns>,
) -> StoreResult<Vec<TransferredTask>> {
    let ids: Vec<i64> = tasks.iter().map(|task| task.id).collect();
    let mut runs = runs_of(conn, &ids)?;
    let mut events = events_of(conn, &ids)?;
    let mut after = dependencies_of(conn, &ids)?;
    let mut rejections = rejections_of(conn, &ids)?;
    let whole = |task: TaskColumns| TransferredTask {
        runs: runs.remove(&task.id).unwrap_or_default(),
        events: events.remove(&task.id).unwrap_or_default(),
        after: after.remove(&task.id).unwrap_or_default(),
        rejections: rejections.remove(&task.id).unwrap_or_default(),
        task,
    };
    Ok(tasks.into_iter().map(whole).collect())
}

fn runs_of(conn: &mut AnyConnection, tasks: &[i64]) -> StoreResult<HashMap<i64, Vec<TransferredRun>>> {
    let rows: Vec<RunColumns> = task_queue_runs::table
        .filter(task_queue_runs::task_queue_id.eq_any(tasks))
        .order((task_queue_runs::task_queue_id, task_queue_runs::id))
        .select(RunColumns::as_select())
        .load(conn)?;
    let ids: Vec<i64> = rows.iter().map(|run| run.id).collect();
    let mut outputs: HashMap<i64, Vec<OutputColumns>> = HashMap::new();
    for part in ids.chunks(IDS_PER_STATEMENT) {
        let found: Vec<OutputColumns> = task_queue_run_outputs::table
            .filter(task_queue_run_outputs::run_id.eq_any(part))
            .order((task_queue_run_outputs::run_id, task_queue_run_outputs::stream))
            .select(OutputColumns::as_select())
            .load(conn)?;
        outputs.extend(by_owner(found, |output| output.run_id));
    }
    let with_outputs = |run: RunColumns| TransferredRun { outputs: outputs.remove(&run.id).unwrap_or_default(), run };
    Ok(by_owner(rows.into_iter().map(with_outputs), |whole| whole.run.task_queue_id))
}

fn events_of(conn: &mut AnyConnection, tasks: &[i64]) -> StoreResult<HashMap<i64, Vec<EventColumns>>> {
    let rows: Vec<EventColumns> = task_queue_events::table
        .filter(task_queue_events::task_queue_id.eq_any(tasks.iter().copied().map(Some)))
        .order((task_queue_events::task_queue_id, task_queue_events::id))
        .select(EventColumns::as_select())
        .load(conn)?;
    Ok(by_owner(rows, |event| event.task_queue_id.unwrap_or_default()))
}

fn dependencies_of(conn: &mut AnyConnection, tasks: &[i64]) -> StoreResult<HashMap<i64, Vec<DependencyColumns>>> {
    let rows: Vec<DependencyColumns> = task_queue_dependencies::table
        .filter(task_queue_dependencies::task_id.eq_any(tasks))
        .order((task_queue_dependencies::task_id, task_queue_dependencies::depends_on_id))
        .select(DependencyColumns::as_select())
        .load(conn)?;
    Ok(by_owner(rows, |edge| edge.task_id))
}

fn rejections_of(conn: &mut AnyConnection, tasks: &[i64]) -> StoreResult<HashMap<i64, Vec<RejectionColumns>>> {
    let rows: Vec<RejectionColumns> = task_queue_rejections::table
        .filter(task_queue_rejections::task_id.eq_any(tasks))
        .order((task_queue_rejections::task_id, task_queue_rejections::claimant))
        .select(RejectionColumns::as_select())
        .load(conn)?;
    Ok(by_owner(rows, |rejection| rejection.task_id))
}

/// Groups rows by the id of their owner, in their order.
fn by_owner<Row>(rows: impl IntoIterator<Item = Row>, owner: impl Fn(&Row) -> i64) -> HashMap<i64, Vec<Row>> {
    let mut owned: HashMap<i64, Vec<Row>> = HashMap::new();
    for row in rows {
        owned.entry(owner(&row)).or_default().push(row);
    }
    owned
}
