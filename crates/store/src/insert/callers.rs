//! Queues tasks inside a transaction of the caller, over the caller's connection: the tasks are kept if and only if that
//! transaction commits. Changes no setting of the session, commits nothing, and repeats nothing that would end the transaction.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError, QueryResult};
use diesel::sql_types::Text;

use crate::backend;
use crate::base::new_task::NewTaskRow;
use crate::base::rows::{DependencyRow, PrerequisiteRow};
use crate::base::schema::task_queue::dsl;
use crate::base::schema::{task_queue_events, task_queue_settings};
use crate::base::sql::{SqlMoment, db_now};
use crate::session::origin::Origin;
use crate::{StoreError, StoreResult};
use taskqueue_domain::task::dependencies::Prerequisite;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::new_task::{NewTask, QueueRefusal};
use taskqueue_domain::task::unique::{Arrival, OnConflict, QueuedTask, Uniqueness};

/// How often an insert is repeated because the holder of its key ended at that moment.
const RACES: u32 = 10;

/// The Diesel connection of a caller: `PgConnection`, `MysqlConnection` or `SqliteConnection`.
pub trait CallersConnection: parts::Parts {}

impl<C: parts::Parts> CallersConnection for C {}

mod parts {
    use super::*;

    /// The statements, implemented only in this crate.
    pub trait Parts: Sized {
        fn setting_rows(&mut self) -> QueryResult<Vec<(String, String)>>;
        fn database_now(&mut self) -> QueryResult<DateTime<Utc>>;
        fn insert_row(&mut self, task: &NewTask, waiting_for: i32, now: DateTime<Utc>) -> QueryResult<Vec<i64>>;
        /// Locks those of these prerequisites that exist; each is given with whether only its success is enough.
        fn lock_prerequisites(&mut self, wanted: &BTreeMap<i64, bool>) -> QueryResult<Vec<Edge>>;
        fn insert_dependencies(&mut self, task_id: i64, on: &[Edge]) -> QueryResult<()>;
        fn keep_queued(&mut self, origin: &Origin, task_id: i64) -> QueryResult<()>;
        /// Removes the window of a key if it has expired. Returns true if it had.
        fn free_ended_key(&mut self, class: &str, key: &str) -> QueryResult<bool>;
        fn find_holder(&mut self, class: &str, key: &str) -> QueryResult<Option<KeyHolder>>;
        /// Prepares the connection for the next statement after one has failed.
        fn forget_failed_statement(&mut self);
        /// Runs statements that lock rows of other transactions: none fails because a row is newer than the snapshot of the
        /// transaction.
        fn reading_latest<T>(&mut self, work: impl FnOnce(&mut Self) -> StoreResult<T>) -> StoreResult<T>;
        /// Runs `work` atomically: in a savepoint, or in its own transaction if none is open.
        fn together<T>(&mut self, work: impl FnOnce(&mut Self) -> StoreResult<T>) -> StoreResult<T>;
    }
}

/// Id, status, and the position in its schedule, if it has one.
type KeyHolder = (i64, String, Option<String>);

/// The id of a prerequisite, whether only its success is enough, and whether the dependency is satisfied.
type Edge = (i64, bool, bool);

macro_rules! impl_parts {
    ($connection:ty, $backend:ident, $forget:expr, $latest:path $(, $locked:ident)?) => {
        impl parts::Parts for $connection {
            fn setting_rows(&mut self) -> QueryResult<Vec<(String, String)>> {
                use task_queue_settings::{name, value};
                task_queue_settings::table.select((name, value)).order(name).load(self)
            }

            fn database_now(&mut self) -> QueryResult<DateTime<Utc>> {
                Ok(diesel::select(db_now()).get_result::<SqlMoment>(self)?.into())
            }

            fn insert_row(&mut self, task: &NewTask, waiting_for: i32, now: DateTime<Utc>) -> QueryResult<Vec<i64>> {
                backend::$backend::insert_tasks(self, &[NewTaskRow::new(task, waiting_for, now)])
            }

            fn lock_prerequisites(&mut self, wanted: &BTreeMap<i64, bool>) -> QueryResult<Vec<Edge>> {
                let rows =
                    backend::$backend::lock_prerequisites(self, &wanted.keys().copied().collect::<Vec<_>>())?;
                let edge = |row: PrerequisiteRow| {
                    let needs_success = wanted.get(&row.id).copied().unwrap_or(true);
                    (row.id, needs_success, row.satisfies(needs_success))
                };
                Ok(rows.into_iter().map(edge).collect())
            }

            fn insert_dependencies(&mut self, task_id: i64, on: &[Edge]) -> QueryResult<()> {
                let row = |&(depends_on_id, needs_success, is_satisfied): &_| DependencyRow {
                    task_id,
                    depends_on_id,
                    is_satisfied,
                    needs_success,
                };
                backend::$backend::insert_dependencies(self, &on.iter().map(row).collect::<Vec<_>>())
            }

            fn keep_queued(&mut self, origin: &Origin, task_id: i64) -> QueryResult<()> {
                use task_queue_events::{actor, host, kind, task_queue_id};
                let event = (
                    kind.eq("task-queued".into_sql::<Text>()),
                    task_queue_id.eq(task_id),
                    actor.eq(&origin.actor),
                    host.eq(&origin.host),
                );
                diesel::insert_into(task_queue_events::table).values(event).execute(self).map(drop)
            }

            fn free_ended_key(&mut self, class: &str, key: &str) -> QueryResult<bool> {
                let of_key = dsl::task_queue.filter(dsl::task_class.eq(class)).filter(dsl::live_unique_key.eq(key));
                let over = of_key.filter(dsl::unique_until.le(db_now().nullable()));
                Ok(diesel::update(over).set(dsl::unique_until.eq(None::<SqlMoment>)).execute(self)? > 0)
            }

            fn find_holder(&mut self, class: &str, key: &str) -> QueryResult<Option<KeyHolder>> {
                let of_key = dsl::task_queue.filter(dsl::task_class.eq(class)).filter(dsl::live_unique_key.eq(key));
                let holder = of_key.select((dsl::id, dsl::last_status, dsl::schedule_head));
                holder$(.$locked())?.first(self).optional()
            }

            fn forget_failed_statement(&mut self) {
                ($forget)(self);
            }

            fn reading_latest<T>(&mut self, work: impl FnOnce(&mut Self) -> StoreResult<T>) -> StoreResult<T> {
                $latest(self, work)
            }

            fn together<T>(&mut self, work: impl FnOnce(&mut Self) -> StoreResult<T>) -> StoreResult<T> {
                self.transaction(work)
            }
        }
    };
}

#[cfg(feature = "sqlite")]
impl_parts!(diesel::sqlite::SqliteConnection, sqlite, |_| (), unchanged);
#[cfg(feature = "postgres")]
impl_parts!(diesel::pg::PgConnection, postgres, |_| (), unchanged);
// Locked: the transaction of the caller may use a snapshot from before the holder existed.
#[cfg(feature = "mysql")]
impl_parts!(
    diesel::mysql::MysqlConnection,
    mysql,
    backend::mysql::forget_statements,
    backend::mysql::snapshot::reading_latest,
    for_update
);

/// SQLite and PostgreSQL do not need this.
fn unchanged<C, T>(conn: &mut C, work: impl FnOnce(&mut C) -> StoreResult<T>) -> StoreResult<T> {
    work(conn)
}

/// Returns the name and the value of every setting, read inside the caller's transaction.
///
/// # Errors
/// The database could not be queried.
pub fn callers_settings<C: CallersConnection>(conn: &mut C) -> StoreResult<Vec<(String, String)>> {
    Ok(conn.setting_rows()?)
}

/// Returns the database's clock, queried inside the caller's transaction.
///
/// # Errors
/// The database could not be queried.
pub fn callers_now<C: CallersConnection>(conn: &mut C) -> StoreResult<DateTime<Utc>> {
    Ok(conn.database_now()?)
}

/// Inserts a task inside the caller's transaction. `auditor` records its event, if events of transitions are recorded. Tasks that
/// replace others cannot be queued here.
///
/// # Errors
/// [`StoreError::NotQueued`], after which the caller's transaction is unchanged, or an error of the database.
pub fn insert_in<C: CallersConnection>(
    conn: &mut C,
    task: &NewTask,
    auditor: Option<&Origin>,
) -> StoreResult<QueuedTask> {
    if task.unique.is_none() && !task.has_prerequisites() {
        return insert_or_meet(conn, task, auditor);
    }
    conn.reading_latest(|conn| insert_or_meet(conn, task, auditor))
}

fn insert_or_meet<C: CallersConnection>(
    conn: &mut C,
    task: &NewTask,
    auditor: Option<&Origin>,
) -> StoreResult<QueuedTask> {
    let Some(unique) = &task.unique else {
        let is_one_statement = !task.has_prerequisites() && auditor.is_none();
        let id = if is_one_statement {
            insert(conn, task, auditor)?
        } else {
            conn.together(|conn| insert(conn, task, auditor))?
        };
        return Ok(QueuedTask { id, arrival: Arrival::Queued });
    };
    let mut races = 0;
    loop {
        match conn.together(|conn| insert(conn, task, auditor)) {
            Ok(id) => return Ok(QueuedTask { id, arrival: Arrival::Queued }),
            Err(StoreError::Database(DieselError::DatabaseError(DatabaseErrorKind::UniqueViolation, _)))
                if races < RACES =>
            {
                conn.forget_failed_statement();
                races += 1;
            }
            Err(error) => return Err(error),
        }
        if conn.free_ended_key(task.class.as_str(), &unique.key)? {
            continue;
        }
        if let Some(holder) = conn.find_holder(task.class.as_str(), &unique.key)? {
            return meet_holder(task, unique, holder);
        }
    }
}

fn meet_holder(task: &NewTask, unique: &Uniqueness, (id, status, schedule_head): KeyHolder) -> StoreResult<QueuedTask> {
    // An existing one-time task does not satisfy a request for a schedule, and does not become one.
    let is_what_was_wanted = schedule_head.is_some() || task.recurrence.is_none();
    if unique.on_conflict == OnConflict::Return && is_what_was_wanted {
        return Ok(QueuedTask { id: TaskId(id), arrival: Arrival::Existing });
    }
    let refusal = QueueRefusal::KeyTaken { key: unique.key.clone(), holder: TaskId(id), status };
    Err(StoreError::NotQueued { index: 0, refusal })
}

/// Returns the ids of the prerequisites of a task, each with whether only its success is enough.
fn needs_of(task: &NewTask) -> BTreeMap<i64, bool> {
    let stored = |prerequisite: &Prerequisite| match prerequisite {
        Prerequisite::Task(id) => Some(id.0),
        Prerequisite::InBatch(_) => None,
    };
    let any = task.after_any.iter().filter_map(stored).map(|id| (id, false));
    // Of a task in both lists, the success is needed: the later entry counts.
    any.chain(task.after.iter().filter_map(stored).map(|id| (id, true))).collect()
}

fn insert<C: CallersConnection>(conn: &mut C, task: &NewTask, auditor: Option<&Origin>) -> StoreResult<TaskId> {
    let wanted = needs_of(task);
    let on = if wanted.is_empty() { Vec::new() } else { conn.lock_prerequisites(&wanted)? };
    let is_there = |id: &i64| on.iter().any(|(there, ..)| there == id);
    if let Some(missing) = wanted.keys().find(|id| !is_there(id)) {
        let refusal = QueueRefusal::NoSuchTask(TaskId(*missing));
        return Err(StoreError::NotQueued { index: 0, refusal });
    }
    let now = if task.needs_now() { conn.database_now()? } else { DateTime::UNIX_EPOCH };
    let open = on.iter().filter(|(.., is_satisfied)| !is_satisfied).count();
    let inserted = conn.insert_row(task, i32::try_from(open).unwrap_or(i32::MAX), now)?;
    let task_id = inserted.first().copied().unwrap_or_default();
    if !on.is_empty() {
        conn.insert_dependencies(task_id, &on)?;
    }
    if let Some(origin) = auditor {
        conn.keep_queued(origin, task_id)?;
    }
    Ok(TaskId(task_id))
}
