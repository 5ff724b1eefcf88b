//! The only code that distinguishes engines. `sqlite.rs`, `postgres.rs` and `mysql.rs` have the same functions, with the
//! statements that must differ; the rest of the store is portable Diesel.

/// Calls the function of this name in the module of the connection's engine. `servers` and `postgres`: the other engines need
/// nothing, and the value after `else` is returned for them.
macro_rules! of_engine {
    ($name:ident($conn:ident $(, $value:expr)*)) => {
        by_engine!(match $conn {
            AnyConnection::Sqlite(conn) => sqlite::$name(conn $(, $value)*),
            AnyConnection::Postgres(conn) => postgres::$name(conn $(, $value)*),
            AnyConnection::Mysql(conn) => mysql::$name(conn $(, $value)*),
        })
    };
    (servers: $name:ident($conn:ident $(, $value:expr)*), else $nothing:expr) => {
        by_engine!(match $conn {
            AnyConnection::Sqlite(_) => Ok($nothing),
            AnyConnection::Postgres(conn) => postgres::$name(conn $(, $value)*),
            AnyConnection::Mysql(conn) => mysql::$name(conn $(, $value)*),
        })
    };
    (postgres: $name:ident($conn:ident $(, $value:expr)*), else $nothing:expr) => {
        by_engine!(match $conn {
            AnyConnection::Sqlite(_) | AnyConnection::Mysql(_) => Ok($nothing),
            AnyConnection::Postgres(conn) => postgres::$name(conn $(, $value)*),
        })
    };
}

pub(super) mod batch;
mod connect_failure;
pub(super) mod health;
mod insert_one;
pub(super) mod local_settings;
#[cfg(feature = "mysql")]
pub(super) mod mysql;
pub(super) mod notices;
#[cfg(feature = "postgres")]
pub(super) mod postgres;
#[cfg(feature = "sqlite")]
pub(super) mod sqlite;
pub(super) mod transport;
mod watch;

use std::path::{Path, PathBuf};
use std::time::Duration;

#[cfg(any(feature = "postgres", feature = "mysql"))]
use diesel::connection::SimpleConnection as _;
use diesel::connection::{AnsiTransactionManager, Connection, TransactionManager};
use diesel::prelude::*;
use diesel::result::{Error as DieselError, QueryResult};
use diesel_migrations::EmbeddedMigrations;

use self::connect_failure::{no_client, unreachable};
use self::insert_one::InsertOne;
use crate::address::url::{DatabaseUrl, Engine};
use crate::base::connection::{AnyConnection, MultiBackend, by_engine};
use crate::base::counted::number_of;
use crate::base::new_task::NewTaskRow;
use crate::base::rows::{DependencyRow, PrerequisiteRow};
use crate::base::schema::{task_queue, task_queue_class_holds, task_queue_locks, task_queue_run_outputs};
use crate::base::sql::{SqlMoment, db_now, db_now_plus};
use crate::error::{Repeat, StoreError, StoreResult, classify_portably};
use taskqueue_domain::task::ids::RunId;
use taskqueue_domain::task::records::RunOutput;
use taskqueue_host::files::beside;
use taskqueue_host::net::patience::Patience;
use taskqueue_host::net::sockets::LibrarySocket;

/// How much longer than the limit of a statement the client waits, so that the server can report the timeout.
const LOOK_GRACE: Duration = Duration::from_secs(1);

/// Connects and prepares the session. Creates a SQLite file if its directory exists.
pub(super) fn connect(url: &DatabaseUrl) -> StoreResult<AnyConnection> {
    by_engine!(match url.engine() {
        Engine::Sqlite => sqlite::connect(url).map(AnyConnection::Sqlite),
        Engine::Postgres => postgres::connect(url).map(AnyConnection::Postgres),
        Engine::Mysql => mysql::connect(url).map(AnyConnection::Mysql),
        _ => Err(no_client(url.engine())),
    })
}

/// Connects to an existing store for a session that only reads; statements wait at most about `limit`.
pub(super) fn connect_to_look(url: &DatabaseUrl, limit: Duration) -> StoreResult<AnyConnection> {
    let url = &url.with_patience(Patience::of(limit + LOOK_GRACE));
    by_engine!(match url.engine() {
        Engine::Sqlite => sqlite::connect_to_look(url, limit).map(AnyConnection::Sqlite),
        Engine::Postgres => postgres::connect_to_look(url, limit).map(AnyConnection::Postgres),
        Engine::Mysql => mysql::connect_to_look(url, limit).map(AnyConnection::Mysql),
        _ => Err(no_client(url.engine())),
    })
}

/// Connects to a SQLite file whose disk is full or read-only, if that is the cause of `error`.
pub(super) fn connect_frozen(url: &DatabaseUrl, error: &StoreError) -> StoreResult<Option<(AnyConnection, String)>> {
    by_engine!(match url.engine() {
        Engine::Sqlite => Ok(sqlite::connect_frozen(url, error)?.map(|(conn, why)| (AnyConnection::Sqlite(conn), why))),
        // Differs: the other engines are read through a server, whatever the state of its disk.
        _ => Ok(None),
    })
}

/// Connects to an empty SQLite store in memory.
pub(super) fn connect_to_memory(url: &DatabaseUrl) -> StoreResult<AnyConnection> {
    by_engine!(match url.engine() {
        Engine::Sqlite => sqlite::connect_to_memory(url).map(AnyConnection::Sqlite),
        _ => Err(no_client(Engine::Sqlite)),
    })
}

/// Connects to an existing store to examine it; `None` if it is a SQLite file that does not exist yet.
pub(super) fn connect_if_there(url: &DatabaseUrl) -> StoreResult<Option<AnyConnection>> {
    by_engine!(match url.engine() {
        // Differs: connecting to the other engines creates nothing.
        Engine::Sqlite => Ok(sqlite::connect_if_there(url)?.map(AnyConnection::Sqlite)),
        _ => connect(url).map(Some),
    })
}

/// The channel for cancelled runs, with the id of the run. It covers the whole database: the listener checks whether the run is its
/// own.
pub(super) const CANCEL_CHANNEL: &str = "taskqueue_cancel";
/// The channel for messages to tasks, without their text. It covers the whole database, like [`CANCEL_CHANNEL`].
pub(super) const MESSAGE_CHANNEL: &str = "taskqueue_message";
/// The channels to which a runner listens for its runs.
pub(super) const RUN_CHANNELS: &[&str] = &[CANCEL_CHANNEL, MESSAGE_CHANNEL];
/// The channel for work that there may be to claim.
pub(super) const WORK_CHANNEL: &str = "taskqueue_work";
/// The channel for finished tasks.
pub(super) const END_CHANNEL: &str = "taskqueue_end";

/// Connects and listens to these channels. Returns the connection and the socket to poll, if the engine supports notifications.
pub(super) fn connect_listening(
    url: &DatabaseUrl,
    channels: &[&str],
) -> StoreResult<(AnyConnection, Option<LibrarySocket>)> {
    by_engine!(match url.engine() {
        Engine::Postgres => postgres::connect_listening(url, channels),
        // Differs: the other engines have no notifications.
        _ => Ok((connect(url)?, None)),
    })
}

/// Notifies the listeners of a channel, when this transaction commits. Those of the other engines poll, or detect that the file
/// was written.
pub(super) fn notify(conn: &mut AnyConnection, channel: &str, payload: &str) -> QueryResult<()> {
    of_engine!(postgres: notify(conn, channel, payload), else ())
}

/// Makes later statements read rows by their keys, in the order of the keys.
pub(super) fn prefer_lookups(conn: &mut AnyConnection) -> QueryResult<()> {
    // Differs: a plan made while a table was small is kept, and reads the whole table when it has grown.
    of_engine!(postgres: prefer_lookups(conn), else ())
}

/// Returns true if listeners are notified of finished tasks; other engines have no notifications, or listeners detect the write.
pub(super) const fn supports_finish_notifications(engine: Engine) -> bool {
    matches!(engine, Engine::Postgres)
}

/// Notifies waiters that tasks have finished. Returns true if any process was listening.
pub(super) fn notify_finished(conn: &mut AnyConnection) -> QueryResult<bool> {
    // Waiters on the other engines detect that the file was written.
    of_engine!(postgres: notify_finished(conn), else false)
}

/// Makes this connection listen for finished tasks, and registers it as a waiter.
pub(super) fn listen_for_ends(conn: &mut AnyConnection) -> QueryResult<()> {
    of_engine!(postgres: listen_for_ends(conn), else ())
}

/// Stops listening for finished tasks.
pub(super) fn ignore_ends(conn: &mut AnyConnection) -> QueryResult<()> {
    of_engine!(postgres: ignore_ends(conn), else ())
}

/// Returns the file to which every change of the store is written first; `None` if the store is not a file.
pub(super) fn log_path(url: &DatabaseUrl) -> Option<PathBuf> {
    url.path().map(|path| log_of(&path))
}

/// Returns the write-ahead log of a SQLite file.
fn log_of(store: &Path) -> PathBuf {
    beside(store, "-wal")
}

/// Returns true if this connection was notified since the last call.
pub(super) fn was_notified(conn: &mut AnyConnection) -> QueryResult<bool> {
    of_engine!(postgres: was_notified(conn), else false)
}

/// Returns the migrations of the engine.
pub(super) fn migrations(engine: Engine) -> StoreResult<EmbeddedMigrations> {
    by_engine!(match engine {
        Engine::Sqlite => Ok(sqlite::MIGRATIONS),
        Engine::Postgres => Ok(postgres::MIGRATIONS),
        Engine::Mysql => Ok(mysql::MIGRATIONS),
        _ => Err(no_client(engine)),
    })
}

/// Executes a statement whose names are in double quotes, and returns its rows.
pub(super) fn load_named<Row>(conn: &mut AnyConnection, statement: &str) -> QueryResult<Vec<Row>>
where
    Row: QueryableByName<MultiBackend> + 'static,
{
    let statement = by_engine!(match conn {
        AnyConnection::Sqlite(_) | AnyConnection::Postgres(_) => statement.to_owned(),
        AnyConnection::Mysql(_) => statement.replace('"', "`"),
    });
    diesel::sql_query(statement).load(conn)
}

/// Returns true if the database has the table of migrations, which the first migration creates.
pub(super) fn has_migrations_table(conn: &mut AnyConnection) -> QueryResult<bool> {
    of_engine!(has_migrations_table(conn))
}

/// Returns true if a file has tables, but none of this program. A server's database may always be shared.
pub(super) fn is_foreign(conn: &mut AnyConnection) -> StoreResult<bool> {
    by_engine!(match conn {
        AnyConnection::Sqlite(conn) => Ok(sqlite::is_foreign(conn)?),
        AnyConnection::Postgres(_) | AnyConnection::Mysql(_) => Ok(false),
    })
}

/// Runs `work` while no other process can migrate. Locks nothing else.
pub(super) fn with_migration_lock<T>(
    conn: &mut AnyConnection,
    url: &DatabaseUrl,
    work: impl FnOnce(&mut AnyConnection) -> StoreResult<T>,
) -> StoreResult<T> {
    by_engine!(match conn {
        AnyConnection::Sqlite(_) => sqlite::with_migration_lock(conn, url, work),
        AnyConnection::Postgres(_) => postgres::with_migration_lock(conn, url, work),
        AnyConnection::Mysql(_) => mysql::with_migration_lock(conn, url, work),
    })
}

/// Begins a write transaction.
fn begin_write(conn: &mut AnyConnection) -> QueryResult<()> {
    by_engine!(match conn {
        // Differs: a deferred BEGIN would fail at its first write, without waiting, if another process has written since its
        // first read.
        AnyConnection::Sqlite(conn) => AnsiTransactionManager::begin_transaction_sql(conn, "BEGIN IMMEDIATE"),
        _ => <AnyConnection as Connection>::TransactionManager::begin_transaction(conn),
    })
}

/// Runs `work` in one write transaction.
pub(super) fn write_transaction<T>(
    conn: &mut AnyConnection,
    work: impl FnOnce(&mut AnyConnection) -> StoreResult<T>,
) -> StoreResult<T> {
    begin_write(conn)?;
    finish_transaction(conn, work)
}

/// Runs `work`, which only reads, in one transaction that sees nothing that is committed after its first statement.
pub(super) fn snapshot_transaction<T>(
    conn: &mut AnyConnection,
    work: impl FnOnce(&mut AnyConnection) -> StoreResult<T>,
) -> StoreResult<T> {
    type Manager = <AnyConnection as Connection>::TransactionManager;
    let as_snapshot = |conn: &mut AnyConnection| {
        by_engine!(match conn {
            AnyConnection::Postgres(conn) => conn.batch_execute(
                "SET LOCAL transaction_isolation = 'repeatable read'; SET LOCAL transaction_read_only = on",
            )?,
            _ => (),
        });
        work(conn)
    };
    // In a session that is shared, the transaction with its settings has begun; it has read nothing yet.
    if Manager::transaction_manager_status_mut(conn).transaction_depth()?.is_some() {
        return as_snapshot(conn);
    }
    // Differs by necessity: MySQL refuses it inside the transaction, and every transaction of SQLite is a snapshot.
    by_engine!(match conn {
        AnyConnection::Mysql(conn) =>
            conn.batch_execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")?,
        _ => (),
    });
    Manager::begin_transaction(conn)?;
    finish_transaction(conn, as_snapshot)
}

fn finish_transaction<T>(
    conn: &mut AnyConnection,
    work: impl FnOnce(&mut AnyConnection) -> StoreResult<T>,
) -> StoreResult<T> {
    type Manager = <AnyConnection as Connection>::TransactionManager;
    match work(conn) {
        Ok(value) => {
            Manager::commit_transaction(conn)?;
            Ok(value)
        }
        Err(error) => {
            // The first error is reported. If the rollback fails, the connection is lost and the database rolls back on its own.
            let _ = Manager::rollback_transaction(conn);
            Err(error)
        }
    }
}

/// Runs `work` in one transaction under the exclusive lock of claims on TaskQueueRuns.
pub(super) fn claim_transaction<T>(
    conn: &mut AnyConnection,
    keeps_events: bool,
    work: impl FnOnce(&mut AnyConnection) -> StoreResult<T>,
) -> StoreResult<T> {
    by_engine!(match conn {
        AnyConnection::Sqlite(_) | AnyConnection::Postgres(_) => write_transaction(conn, |conn| {
            exclude_claims(conn)?;
            work(conn)
        }),
        AnyConnection::Mysql(_) => mysql::under_table_locks(conn, keeps_events, work),
    })
}

/// Runs `work` in one transaction that excludes transactions under the exclusive lock, but not its own kind: concurrent claims
/// skip rows that another one has locked.
pub(super) fn shared_claim_transaction<T>(
    conn: &mut AnyConnection,
    work: impl FnOnce(&mut AnyConnection) -> StoreResult<T>,
) -> StoreResult<T> {
    write_transaction(conn, |conn| {
        // On SQLite, BEGIN IMMEDIATE already excludes all other writers.
        let shared: QueryResult<()> = of_engine!(servers: share_runs(conn), else ());
        shared?;
        work(conn)
    })
}

/// Returns true if this transaction may claim this many runs concurrently with others now. If not, one more claim would only cause
/// contention.
pub(super) fn take_lane(conn: &mut AnyConnection, runs: usize) -> QueryResult<bool> {
    // Differs: claims on the other engines skip locked rows at little cost.
    of_engine!(postgres: take_lane(conn, runs), else true)
}

/// Waits for claims in progress and blocks new ones until the end of the transaction. Does nothing on MySQL and MariaDB, whose
/// claims use other locks.
pub(super) fn exclude_claims(conn: &mut AnyConnection) -> QueryResult<()> {
    of_engine!(postgres: lock_runs(conn), else ())
}

/// Returns true if a write transaction excludes all other writers.
pub(super) const fn excludes_all(conn: &AnyConnection) -> bool {
    by_engine!(match conn {
        AnyConnection::Sqlite(_) => true,
        AnyConnection::Postgres(_) | AnyConnection::Mysql(_) => false,
    })
}

/// Locks a row of TaskQueueLocks until the end of the transaction; other transactions that need it wait here.
pub(super) fn lock_gate(conn: &mut AnyConnection, gate: &str) -> QueryResult<()> {
    use task_queue_locks::dsl;
    let of_name = dsl::task_queue_locks.filter(dsl::name.eq(gate));
    by_engine!(match conn {
        // BEGIN IMMEDIATE already excludes all other writers.
        AnyConnection::Sqlite(_) => Ok(()),
        AnyConnection::Postgres(conn) | AnyConnection::Mysql(conn) => of_name.for_update().execute(conn).map(drop),
    })
}

/// Must come first in a transaction that uses two of the tables that a claim locks, or reads one of them before it writes it. All
/// transactions take TaskQueue first, as the claim does, so that none can block the claim's table locks while waiting for them.
pub(super) fn enter_both_tables(conn: &mut AnyConnection) -> QueryResult<()> {
    by_engine!(match conn {
        AnyConnection::Mysql(conn) => mysql::enter_task_table(conn),
        // SQLite has one lock; PostgreSQL's claim locks one table.
        AnyConnection::Sqlite(_) | AnyConnection::Postgres(_) => Ok(()),
    })
}

/// Inserts tasks with the engine's fastest statement and returns their ids in the order of the rows.
pub(super) fn insert_tasks(conn: &mut AnyConnection, rows: &[NewTaskRow]) -> QueryResult<Vec<i64>> {
    of_engine!(insert_tasks(conn, rows))
}

/// Returns true if each statement costs a round trip to a server, in which its answer can be lost.
pub(super) const fn has_round_trips(engine: Engine) -> bool {
    !matches!(engine, Engine::Sqlite)
}

/// Inserts a task with a receipt, in one statement.
pub(super) fn insert_one(conn: &mut AnyConnection, row: &NewTaskRow, receipt: &str) -> QueryResult<i64> {
    let insert = InsertOne::new(row, Some(receipt));
    by_engine!(match conn {
        AnyConnection::Sqlite(conn) => insert.get_result(conn),
        AnyConnection::Postgres(conn) => insert.get_result(conn),
        AnyConnection::Mysql(conn) => mysql::insert_one(conn, insert),
    })
}

/// Returns those of these tasks that exist. Locks them in the order of their ids until the transaction
/// ends.
pub(super) fn lock_prerequisites(conn: &mut AnyConnection, ids: &[i64]) -> QueryResult<Vec<PrerequisiteRow>> {
    of_engine!(lock_prerequisites(conn, ids))
}

/// Locks these tasks, which this transaction is about to change, in the order of their ids.
pub(super) fn lock_tasks(conn: &mut AnyConnection, ids: &[i64]) -> QueryResult<()> {
    let of_ids = task_queue::table.filter(task_queue::id.eq_any(ids)).order(task_queue::id).select(task_queue::id);
    by_engine!(match conn {
        AnyConnection::Sqlite(_) => Ok(()),
        // A transaction that references the rows need not wait.
        AnyConnection::Postgres(conn) => of_ids.for_no_key_update().execute(conn).map(drop),
        AnyConnection::Mysql(conn) => of_ids.for_update().execute(conn).map(drop),
    })
}

/// Locks those of these tasks that no other transaction has locked, without waiting, and returns their ids. Uses the lock of a
/// deletion, which also conflicts with transactions that reference the rows.
pub(super) fn lock_free_tasks(conn: &mut AnyConnection, ids: &[i64]) -> QueryResult<Vec<i64>> {
    let of_ids = task_queue::table.filter(task_queue::id.eq_any(ids)).order(task_queue::id).select(task_queue::id);
    by_engine!(match conn {
        AnyConnection::Sqlite(_) => Ok(ids.to_vec()),
        AnyConnection::Postgres(conn) | AnyConnection::Mysql(conn) => of_ids.for_update().skip_locked().load(conn),
    })
}

/// Locks the outputs of these runs, in the order of their ids, and returns the id of the run for each output that still exists.
pub(super) fn lock_outputs(conn: &mut AnyConnection, runs: &[i64]) -> QueryResult<Vec<i64>> {
    use task_queue_run_outputs::dsl;
    let of_runs = dsl::task_queue_run_outputs.filter(dsl::run_id.eq_any(runs));
    let in_order = of_runs.order((dsl::run_id, dsl::stream)).select(dsl::run_id);
    by_engine!(match conn {
        // BEGIN IMMEDIATE already excludes all other writers.
        AnyConnection::Sqlite(conn) => in_order.load(conn),
        AnyConnection::Postgres(conn) | AnyConnection::Mysql(conn) => in_order.for_update().load(conn),
    })
}

/// Saves the output of a handler on one stream, replacing an earlier one.
pub(super) fn put_output(conn: &mut AnyConnection, run_id: RunId, output: &RunOutput) -> QueryResult<()> {
    use task_queue_run_outputs::dsl;
    let key = (dsl::run_id, dsl::stream);
    let said =
        (dsl::content.eq(&output.content), dsl::total_bytes.eq(output.total_bytes), dsl::is_lossy.eq(output.is_lossy));
    let row = (dsl::run_id.eq(run_id.0), dsl::stream.eq(&output.stream), said);
    let insert = diesel::insert_into(dsl::task_queue_run_outputs).values(row);
    let replace = diesel::replace_into(dsl::task_queue_run_outputs).values(row);
    by_engine!(match conn {
        AnyConnection::Sqlite(conn) | AnyConnection::Mysql(conn) => replace.execute(conn),
        // Differs: it has no REPLACE.
        AnyConnection::Postgres(conn) => insert.on_conflict(key).do_update().set(said).execute(conn),
    })
    .map(drop)
}

/// Inserts dependencies with the engine's fastest statement.
pub(super) fn insert_dependencies(conn: &mut AnyConnection, rows: &[DependencyRow]) -> QueryResult<()> {
    of_engine!(insert_dependencies(conn, rows))
}

/// Returns the id of the row that this connection last inserted into this table, even if triggers have inserted rows since.
pub(super) fn last_inserted_id(conn: &mut AnyConnection, table: &str) -> QueryResult<i64> {
    by_engine!(match conn {
        AnyConnection::Sqlite(conn) => sqlite::last_inserted_id(conn),
        AnyConnection::Postgres(conn) => postgres::last_inserted_id(conn, table),
        AnyConnection::Mysql(conn) => mysql::last_inserted_id(conn),
    })
}

/// Must follow inserts of tasks and runs with explicit ids: later ids continue after those.
pub(super) fn go_on_after_ids(conn: &mut AnyConnection) -> QueryResult<()> {
    // The other engines count from the largest id ever used.
    of_engine!(postgres: go_on_after_ids(conn), else ())
}

/// Writes a receipt of this transaction; returns `false` if an earlier transaction with this token was committed. Waits for a
/// transaction whose COMMIT is still in progress.
pub(super) fn leave_receipt(conn: &mut AnyConnection, token: &str) -> QueryResult<bool> {
    // SQLite runs in this process: the answer to a COMMIT cannot be lost.
    of_engine!(servers: leave_receipt(conn, token), else true)
}

/// A position in the order of the due tasks, by DueOn and then Id.
///
/// A server keeps the index entries of tasks that are no longer due until cleanup. When the runs of a long backlog are created in
/// parts, each part starts at the end of the previous one; otherwise it would scan all dead entries again.
#[derive(Clone, Copy, Debug)]
pub(super) struct DueFrom {
    due_on: SqlMoment,
    task_id: i64,
}

impl DueFrom {
    /// Returns the position before all tasks.
    pub(super) fn beginning() -> Self {
        Self { due_on: SqlMoment::beginning(), task_id: 0 }
    }
}

/// Returns the first due task at or after a position.
pub(super) fn find_due(conn: &mut AnyConnection, from: DueFrom) -> QueryResult<Option<DueFrom>> {
    let found: Option<(Option<SqlMoment>, i64)> = of_engine!(find_due(conn, from))?;
    Ok(found.and_then(|(due_on, task_id)| Some(DueFrom { due_on: due_on?, task_id })))
}

/// Creates one scheduled run for each of the first `limit` due tasks at or after a position, and returns how many were due.
/// Set-based; requires the lock `create-runs`.
pub(super) fn create_due_runs(conn: &mut AnyConnection, from: DueFrom, limit: i64) -> QueryResult<usize> {
    of_engine!(create_due_runs(conn, from, limit))
}

/// The class and the host of a hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClassAtHost<'a> {
    pub(super) class: &'a str,
    pub(super) host: &'a str,
}

/// Holds a class on a host for `secs` seconds from now, whether it is already held or not. In one statement: if several runners
/// find at the same time that a handler cannot be started, none may fail because of a row of another.
pub(super) fn hold_class(conn: &mut AnyConnection, held: &ClassAtHost<'_>, why: &str, secs: i64) -> QueryResult<()> {
    use task_queue_class_holds::dsl;
    let key = (dsl::task_class, dsl::host);
    let until = dsl::held_until.eq(db_now_plus(secs));
    let row = (dsl::task_class.eq(held.class), dsl::host.eq(held.host), dsl::reason.eq(why), until);
    let insert = diesel::insert_into(dsl::task_queue_class_holds).values(row);
    let change = (dsl::reason.eq(why), dsl::held_on.eq(db_now()), until);
    by_engine!(match conn {
        AnyConnection::Sqlite(conn) => insert.on_conflict(key).do_update().set(change).execute(conn),
        AnyConnection::Postgres(conn) => insert.on_conflict(key).do_update().set(change).execute(conn),
        // Differs: there, a statement names no key.
        AnyConnection::Mysql(conn) =>
            insert.on_conflict(diesel::dsl::DuplicatedKeys).do_update().set(change).execute(conn),
    })
    .map(drop)
}

/// Counts the tasks of a class with a status, up to a limit.
pub(super) fn count_of_class(conn: &mut AnyConnection, class: &str, status: &str, limit: i64) -> QueryResult<i64> {
    use task_queue::dsl;
    let of_class = dsl::task_queue.filter(dsl::task_class.eq(class)).filter(dsl::last_status.eq(status));
    // The order of their index.
    let in_order = of_class.order((dsl::task_class, dsl::last_status, dsl::scheduled_on, dsl::id));
    let number = number_of(in_order.select(dsl::id).limit(limit));
    by_engine!(match conn {
        AnyConnection::Sqlite(conn) | AnyConnection::Postgres(conn) => number.get_result(conn),
        AnyConnection::Mysql(conn) => mysql::count_of_class(conn, class, status, limit),
    })
}

/// Prepares the connection for the next statement after one has failed.
pub(super) fn forget_failed_statement(conn: &mut AnyConnection) {
    by_engine!(match conn {
        AnyConnection::Sqlite(_) | AnyConnection::Postgres(_) => (),
        AnyConnection::Mysql(conn) => mysql::forget_statements(conn),
    });
}

/// Returns whether the closure that got this error may be repeated.
pub(super) fn classify(engine: Engine, error: &DieselError) -> Repeat {
    let portable = classify_portably(error);
    // If a COMMIT failed for lack of space, the ROLLBACK may have failed too, because nothing was left to roll back.
    let may_want_room = portable.is_none() || matches!(error, DieselError::RollbackErrorOnCommit { .. });
    if may_want_room && is_without_room(engine, &error.to_string()) {
        return Repeat::WhenRoom;
    }
    portable.unwrap_or_else(|| {
        let text = error.to_string();
        by_engine!(match engine {
            Engine::Sqlite => sqlite::classify(&text),
            Engine::Postgres => postgres::classify(&text),
            Engine::Mysql => mysql::classify(&text),
            _ => Repeat::Never,
        })
    })
}

/// Returns true if this is an error about a full disk.
fn is_without_room(engine: Engine, text: &str) -> bool {
    by_engine!(match engine {
        Engine::Sqlite => sqlite::is_without_room(text),
        Engine::Postgres => postgres::is_without_room(text),
        Engine::Mysql => mysql::is_without_room(text),
        _ => false,
    })
}

/// Returns for how many seconds the server has been up; `None` without a server.
pub(super) fn server_up_secs(conn: &mut AnyConnection) -> QueryResult<Option<i64>> {
    of_engine!(servers: server_up_secs(conn), else None)
}

/// Returns the version of the database, for people.
pub(super) fn server_version(conn: &mut AnyConnection) -> QueryResult<String> {
    of_engine!(server_version(conn))
}
