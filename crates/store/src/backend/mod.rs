//! The one place that asks which engine it is. `sqlite.rs`, `postgres.rs` and `mysql.rs` have the same functions, each
//! with the statements that must differ; everything else in the store is portable Diesel.

pub(super) mod batch;
mod connect_failure;
pub(super) mod connection;
mod copy;
pub(super) mod health;
mod hosts;
mod insert_many;
mod insert_one;
pub(super) mod kept_log;
pub(super) mod mysql;
mod mysql_code;
pub(super) mod pooler;
pub(super) mod postgres;
pub(super) mod snapshot;
pub(super) mod sqlite;
mod sqlstate;
mod url;
mod watch;

use std::path::{Path, PathBuf};
use std::time::Duration;

use diesel::RunQueryDsl as _;
use diesel::connection::{AnsiTransactionManager, Connection, TransactionManager};
use diesel::result::{Error as DieselError, QueryResult};
use diesel_migrations::EmbeddedMigrations;

pub(super) use self::connection::AnyConnection;
use self::insert_one::InsertOne;
pub use self::url::{DatabaseUrl, Engine};
use crate::base::rows::{DependencyRow, NewRunOutputRow};
use crate::base::sql::Moment;
use crate::error::{Repeat, StoreError, StoreResult, classify_portably};
use crate::insert::new_task::NewTaskRow;
use taskqueue_host::net::patience::Patience;
use taskqueue_host::net::sockets::LibrarySocket;

/// A server that has a limit for a statement has so much longer to say that it is over.
const LOOK_GRACE: Duration = Duration::from_secs(1);

/// Connects and prepares the session. A SQLite file is made if its directory exists.
pub(super) fn connect(url: &DatabaseUrl) -> StoreResult<AnyConnection> {
    match url.engine() {
        Engine::Sqlite => sqlite::connect(url).map(AnyConnection::Sqlite),
        Engine::Postgres => postgres::connect(url).map(AnyConnection::Postgres),
        Engine::Mysql => mysql::connect(url).map(AnyConnection::Mysql),
    }
}

/// The same to what is there, for a session that only reads, and waits for nothing longer than about so long.
pub(super) fn connect_to_look(url: &DatabaseUrl, limit: Duration) -> StoreResult<AnyConnection> {
    let url = &url.with_patience(Patience::of(limit + LOOK_GRACE));
    match url.engine() {
        Engine::Sqlite => sqlite::connect_to_look(url, limit).map(AnyConnection::Sqlite),
        Engine::Postgres => postgres::connect_to_look(url, limit).map(AnyConnection::Postgres),
        Engine::Mysql => mysql::connect_to_look(url, limit).map(AnyConnection::Mysql),
    }
}

/// The same to a SQLite file whose disk is full or cannot be written, where that is why `error` was met.
pub(super) fn connect_frozen(url: &DatabaseUrl, error: &StoreError) -> StoreResult<Option<(AnyConnection, String)>> {
    match url.engine() {
        Engine::Sqlite => Ok(sqlite::connect_frozen(url, error)?.map(|(conn, why)| (AnyConnection::Sqlite(conn), why))),
        // Differs: the others are read by way of a server, whatever its disk is like.
        Engine::Postgres | Engine::Mysql => Ok(None),
    }
}

/// To an empty SQLite store in memory.
pub(super) fn connect_to_memory(url: &DatabaseUrl) -> StoreResult<AnyConnection> {
    sqlite::connect_to_memory(url).map(AnyConnection::Sqlite)
}

/// The same to what is there, to see what it is; `None` where it is a SQLite file that is still to be made.
pub(super) fn connect_if_there(url: &DatabaseUrl) -> StoreResult<Option<AnyConnection>> {
    match url.engine() {
        // Differs: to connect to the others makes nothing.
        Engine::Sqlite => Ok(sqlite::connect_if_there(url)?.map(AnyConnection::Sqlite)),
        Engine::Postgres | Engine::Mysql => connect(url).map(Some),
    }
}

/// Where it is said that a run is cancelled. Of the whole database: who hears it asks whether it is one of theirs.
pub(super) const CANCEL_CHANNEL: &str = "taskqueue_cancel";
/// Where it is said that a message to a task was sent. Of the whole database, as of [`CANCEL_CHANNEL`].
pub(super) const MESSAGE_CHANNEL: &str = "taskqueue_message";
/// What a runner listens to for its runs.
pub(super) const RUN_CHANNELS: &[&str] = &[CANCEL_CHANNEL, MESSAGE_CHANNEL];
/// Where it is said that there may be something to claim.
pub(super) const WORK_CHANNEL: &str = "taskqueue_work";
/// Where it is said that a task may have ended.
pub(super) const END_CHANNEL: &str = "taskqueue_end";

/// The same with a connection that is told what is said in these channels, and what to wait at for that, where the engine can
/// tell.
pub(super) fn connect_listening(
    url: &DatabaseUrl,
    channels: &[&str],
) -> StoreResult<(AnyConnection, Option<LibrarySocket>)> {
    match url.engine() {
        // Differs: the others have no way to tell anybody anything.
        Engine::Sqlite | Engine::Mysql => Ok((connect(url)?, None)),
        Engine::Postgres => {
            postgres::connect_listening(url, channels).map(|(conn, socket)| (AnyConnection::Postgres(conn), socket))
        }
    }
}

/// Tells those who listen that a run is cancelled, once this transaction is committed.
pub(super) fn announce_cancel(conn: &mut AnyConnection, run_id: i64) -> QueryResult<()> {
    match conn {
        AnyConnection::Sqlite(_) | AnyConnection::Mysql(_) => Ok(()),
        AnyConnection::Postgres(conn) => postgres::announce_cancel(conn, run_id),
    }
}

/// Notifies runners that a message to a task was sent, once this transaction is committed.
pub(super) fn announce_message(conn: &mut AnyConnection) -> QueryResult<()> {
    match conn {
        // Differs: their runners poll.
        AnyConnection::Sqlite(_) | AnyConnection::Mysql(_) => Ok(()),
        AnyConnection::Postgres(conn) => postgres::announce_message(conn),
    }
}

/// From now on statements read rows by their keys, in the order in which those are given.
pub(super) fn prefer_lookups(conn: &mut AnyConnection) -> QueryResult<()> {
    match conn {
        AnyConnection::Sqlite(_) | AnyConnection::Mysql(_) => Ok(()),
        // Differs: a plan that was made while a table was small is kept, and reads all of it when it is large.
        AnyConnection::Postgres(conn) => postgres::prefer_lookups(conn),
    }
}

/// Tells those who listen that there may be something to claim.
pub(super) fn tell_of_work(conn: &mut AnyConnection) -> QueryResult<()> {
    match conn {
        // They see that the file was written.
        AnyConnection::Sqlite(_) | AnyConnection::Mysql(_) => Ok(()),
        AnyConnection::Postgres(conn) => postgres::tell_of_work(conn),
    }
}

/// Whether the ends of tasks are told to those who listen; elsewhere there is nobody to tell, or they see it.
pub(super) const fn supports_finish_notifications(engine: Engine) -> bool {
    matches!(engine, Engine::Postgres)
}

/// Tells those who wait for the end of a task that some have ended. Whether there was somebody to tell.
pub(super) fn notify_finished(conn: &mut AnyConnection) -> QueryResult<bool> {
    match conn {
        // They see that the file was written.
        AnyConnection::Sqlite(_) | AnyConnection::Mysql(_) => Ok(false),
        AnyConnection::Postgres(conn) => postgres::notify_finished(conn),
    }
}

/// From now on this connection is told of ends, and shows that it wants to be.
pub(super) fn hear_of_ends(conn: &mut AnyConnection) -> QueryResult<()> {
    match conn {
        AnyConnection::Sqlite(_) | AnyConnection::Mysql(_) => Ok(()),
        AnyConnection::Postgres(conn) => postgres::hear_of_ends(conn),
    }
}

/// No longer.
pub(super) fn ignore_ends(conn: &mut AnyConnection) -> QueryResult<()> {
    match conn {
        AnyConnection::Sqlite(_) | AnyConnection::Mysql(_) => Ok(()),
        AnyConnection::Postgres(conn) => postgres::ignore_ends(conn),
    }
}

/// The file that every change of the store is written to first; `None` where the store is no file.
pub(super) fn log_path(url: &DatabaseUrl) -> Option<PathBuf> {
    url.path().map(|path| log_of(&path))
}

/// The write-ahead log of a SQLite file.
fn log_of(store: &Path) -> PathBuf {
    let mut path = store.as_os_str().to_owned();
    path.push("-wal");
    path.into()
}

/// Whether this connection was told something since the last question.
pub(super) fn was_notified(conn: &mut AnyConnection) -> QueryResult<bool> {
    match conn {
        AnyConnection::Sqlite(_) | AnyConnection::Mysql(_) => Ok(false),
        AnyConnection::Postgres(conn) => postgres::was_notified(conn),
    }
}

/// The migrations of the engine.
pub(super) fn migrations(engine: Engine) -> EmbeddedMigrations {
    match engine {
        Engine::Sqlite => sqlite::MIGRATIONS,
        Engine::Postgres => postgres::MIGRATIONS,
        Engine::Mysql => mysql::MIGRATIONS,
    }
}

/// Whether the database has the table of migrations, which the first migration makes.
pub(super) fn has_migrations_table(conn: &mut AnyConnection) -> QueryResult<bool> {
    match conn {
        AnyConnection::Sqlite(conn) => sqlite::has_migrations_table(conn),
        AnyConnection::Postgres(conn) => postgres::has_migrations_table(conn),
        AnyConnection::Mysql(conn) => mysql::has_migrations_table(conn),
    }
}

/// Whether a file holds tables, but none of ours. A server's database may always be shared.
pub(super) fn is_foreign(conn: &mut AnyConnection) -> StoreResult<bool> {
    match conn {
        AnyConnection::Sqlite(conn) => Ok(sqlite::is_foreign(conn)?),
        AnyConnection::Postgres(_) | AnyConnection::Mysql(_) => Ok(false),
    }
}

/// Runs `work` while no other process can migrate. Nothing else is locked.
pub(super) fn with_migration_lock<T>(
    conn: &mut AnyConnection,
    url: &DatabaseUrl,
    work: impl FnOnce(&mut AnyConnection) -> StoreResult<T>,
) -> StoreResult<T> {
    match url.engine() {
        Engine::Sqlite => sqlite::with_migration_lock(conn, url, work),
        Engine::Postgres => postgres::with_migration_lock(conn, url, work),
        Engine::Mysql => mysql::with_migration_lock(conn, url, work),
    }
}

/// Begins a transaction that will write.
fn begin_write(conn: &mut AnyConnection) -> QueryResult<()> {
    match conn {
        // Differs: a deferred BEGIN would fail at its first write, without waiting, whenever another process wrote
        // since its first read.
        AnyConnection::Sqlite(conn) => AnsiTransactionManager::begin_transaction_sql(conn, "BEGIN IMMEDIATE"),
        _ => <AnyConnection as Connection>::TransactionManager::begin_transaction(conn),
    }
}

/// Runs `work` in one transaction that writes.
pub(super) fn write_transaction<T>(
    conn: &mut AnyConnection,
    work: impl FnOnce(&mut AnyConnection) -> StoreResult<T>,
) -> StoreResult<T> {
    begin_write(conn)?;
    finish_transaction(conn, work)
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
            // The first error is the one to report; a rollback that fails means that the connection is gone, and the
            // database rolls back by itself.
            let _ = Manager::rollback_transaction(conn);
            Err(error)
        }
    }
}

/// Runs `work` in one transaction under the WRITE lock on TaskQueueRuns (the scheme's lock for the pickup).
pub(super) fn claim_transaction<T>(
    conn: &mut AnyConnection,
    keeps_events: bool,
    work: impl FnOnce(&mut AnyConnection) -> StoreResult<T>,
) -> StoreResult<T> {
    match conn {
        AnyConnection::Sqlite(_) => write_transaction(conn, work),
        AnyConnection::Postgres(_) => write_transaction(conn, |conn| {
            postgres::lock_runs(conn)?;
            work(conn)
        }),
        AnyConnection::Mysql(_) => mysql::under_table_locks(conn, keeps_events, work),
    }
}

/// Runs `work` in one transaction that excludes everybody under the WRITE lock, and nobody else: those who claim so see which
/// rows another one of them has locked, and pass them over.
pub(super) fn shared_claim_transaction<T>(
    conn: &mut AnyConnection,
    work: impl FnOnce(&mut AnyConnection) -> StoreResult<T>,
) -> StoreResult<T> {
    write_transaction(conn, |conn| {
        match conn {
            // BEGIN IMMEDIATE excludes all.
            AnyConnection::Sqlite(_) => {}
            AnyConnection::Postgres(conn) => postgres::share_runs(conn)?,
            AnyConnection::Mysql(conn) => mysql::share_runs(conn)?,
        }
        work(conn)
    })
}

/// Whether this transaction may claim beside others now. If not, so many claim already that one more would only be in their way.
pub(super) fn take_lane(conn: &mut AnyConnection) -> QueryResult<bool> {
    match conn {
        // Differs: the claims of the others pass over locked rows at little cost.
        AnyConnection::Sqlite(_) | AnyConnection::Mysql(_) => Ok(true),
        AnyConnection::Postgres(conn) => postgres::take_lane(conn),
    }
}

/// Waits for the claims that are under way, and keeps others away until the end of the transaction; on MySQL and MariaDB, whose
/// claims lock in another way, it does not.
pub(super) fn exclude_claims(conn: &mut AnyConnection) -> QueryResult<()> {
    match conn {
        AnyConnection::Postgres(_) => postgres::lock_runs(conn),
        AnyConnection::Sqlite(_) | AnyConnection::Mysql(_) => Ok(()),
    }
}

/// Whether a transaction that writes lets nobody else write meanwhile.
pub(super) const fn excludes_all(conn: &AnyConnection) -> bool {
    matches!(conn, AnyConnection::Sqlite(_))
}

/// Takes a row of TaskQueueLocks for the rest of the transaction: whoever comes second waits here.
pub(super) fn lock_gate(conn: &mut AnyConnection, gate: &str) -> QueryResult<()> {
    match conn {
        // BEGIN IMMEDIATE has shut everybody else out already.
        AnyConnection::Sqlite(_) => Ok(()),
        AnyConnection::Postgres(conn) => postgres::lock_gate(conn, gate),
        AnyConnection::Mysql(conn) => mysql::lock_gate(conn, gate),
    }
}

/// Must be the first thing in a transaction that takes two of the tables that a claim locks, or reads one of them before it
/// writes it: all take TaskQueue first, as the claim does, so that none can block the claim's table locks while it waits for
/// them.
pub(super) fn enter_both_tables(conn: &mut AnyConnection) -> QueryResult<()> {
    match conn {
        AnyConnection::Mysql(conn) => mysql::enter_task_table(conn),
        // SQLite has one lock; PostgreSQL's claim locks one table.
        AnyConnection::Sqlite(_) | AnyConnection::Postgres(_) => Ok(()),
    }
}

/// Inserts tasks with the engine's fastest statement and returns their ids in the order of the rows.
pub(super) fn insert_tasks(conn: &mut AnyConnection, rows: &[NewTaskRow]) -> QueryResult<Vec<i64>> {
    match conn {
        AnyConnection::Sqlite(conn) => sqlite::insert_tasks(conn, rows),
        AnyConnection::Postgres(conn) => postgres::insert_tasks(conn, rows),
        AnyConnection::Mysql(conn) => mysql::insert_tasks(conn, rows),
    }
}

/// Whether each statement costs a way to a server and back, on which its answer can be lost.
pub(super) const fn has_round_trips(engine: Engine) -> bool {
    !matches!(engine, Engine::Sqlite)
}

/// Inserts a task with a receipt. One statement writes it.
pub(super) fn insert_one(conn: &mut AnyConnection, row: &NewTaskRow, receipt: &str) -> QueryResult<i64> {
    let insert = InsertOne::new(row, Some(receipt));
    match conn {
        AnyConnection::Sqlite(conn) => insert.get_result(conn),
        AnyConnection::Postgres(conn) => insert.get_result(conn),
        AnyConnection::Mysql(conn) => mysql::insert_one(conn, insert),
    }
}

/// The ids and statuses of those of these tasks that there are. None of them changes before the transaction ends; they are
/// locked in the order of their ids.
pub(super) fn lock_prerequisites(conn: &mut AnyConnection, ids: &[i64]) -> QueryResult<Vec<(i64, String)>> {
    match conn {
        AnyConnection::Sqlite(conn) => sqlite::lock_prerequisites(conn, ids),
        AnyConnection::Postgres(conn) => postgres::lock_prerequisites(conn, ids),
        AnyConnection::Mysql(conn) => mysql::lock_prerequisites(conn, ids),
    }
}

/// Locks these tasks, which this transaction is about to change, in the order of their ids.
pub(super) fn lock_tasks(conn: &mut AnyConnection, ids: &[i64]) -> QueryResult<()> {
    match conn {
        // BEGIN IMMEDIATE has shut everybody else out already.
        AnyConnection::Sqlite(_) => Ok(()),
        AnyConnection::Postgres(conn) => postgres::lock_tasks(conn, ids),
        AnyConnection::Mysql(conn) => mysql::lock_tasks(conn, ids),
    }
}

/// Locks those of these tasks that nobody else has locked, waits for none, and returns their ids.
pub(super) fn lock_free_tasks(conn: &mut AnyConnection, ids: &[i64]) -> QueryResult<Vec<i64>> {
    match conn {
        // BEGIN IMMEDIATE has shut everybody else out already.
        AnyConnection::Sqlite(_) => Ok(ids.to_vec()),
        AnyConnection::Postgres(conn) => postgres::lock_free_tasks(conn, ids),
        AnyConnection::Mysql(conn) => mysql::lock_free_tasks(conn, ids),
    }
}

/// Locks what these runs wrote, in the order of their ids, and returns the id of the run for each output that is still there.
pub(super) fn lock_outputs(conn: &mut AnyConnection, runs: &[i64]) -> QueryResult<Vec<i64>> {
    match conn {
        // BEGIN IMMEDIATE has shut everybody else out already.
        AnyConnection::Sqlite(conn) => sqlite::list_outputs(conn, runs),
        AnyConnection::Postgres(conn) => postgres::lock_outputs(conn, runs),
        AnyConnection::Mysql(conn) => mysql::lock_outputs(conn, runs),
    }
}

/// Saves what a handler wrote to one stream, in place of what was saved before.
pub(super) fn put_output(conn: &mut AnyConnection, row: &NewRunOutputRow<'_>) -> QueryResult<()> {
    match conn {
        AnyConnection::Sqlite(conn) => sqlite::put_output(conn, row),
        AnyConnection::Postgres(conn) => postgres::put_output(conn, row),
        AnyConnection::Mysql(conn) => mysql::put_output(conn, row),
    }
}

/// Inserts dependencies with the engine's fastest statement.
pub(super) fn insert_dependencies(conn: &mut AnyConnection, rows: &[DependencyRow]) -> QueryResult<()> {
    match conn {
        AnyConnection::Sqlite(conn) => sqlite::insert_dependencies(conn, rows),
        AnyConnection::Postgres(conn) => postgres::insert_dependencies(conn, rows),
        AnyConnection::Mysql(conn) => mysql::insert_dependencies(conn, rows),
    }
}

/// Sets when a task is to be processed, and the planned time that it is for.
pub(super) fn plan_task(
    conn: &mut AnyConnection,
    task_id: i64,
    scheduled_on: Moment,
    planned_on: Option<Moment>,
) -> QueryResult<()> {
    match conn {
        AnyConnection::Sqlite(conn) => sqlite::plan_task(conn, task_id, scheduled_on, planned_on),
        AnyConnection::Postgres(conn) => postgres::plan_task(conn, task_id, scheduled_on, planned_on),
        // Differs: a time from 2038 on must be sent as text.
        AnyConnection::Mysql(conn) => mysql::plan_task(conn, task_id, scheduled_on, planned_on),
    }
}

/// The id of the row that this connection has just inserted into this table, whatever triggers have inserted since.
pub(super) fn last_inserted_id(conn: &mut AnyConnection, table: &str) -> QueryResult<i64> {
    match conn {
        AnyConnection::Sqlite(conn) => sqlite::last_inserted_id(conn),
        AnyConnection::Postgres(conn) => postgres::last_inserted_id(conn, table),
        AnyConnection::Mysql(conn) => mysql::last_inserted_id(conn),
    }
}

/// Must follow inserts of tasks and runs with ids: the next ones come after those.
pub(super) fn go_on_after_ids(conn: &mut AnyConnection) -> QueryResult<()> {
    match conn {
        AnyConnection::Postgres(conn) => postgres::go_on_after_ids(conn),
        // They count from the largest id that there ever was.
        AnyConnection::Sqlite(_) | AnyConnection::Mysql(_) => Ok(()),
    }
}

/// Leaves a receipt of this transaction; `false` if an earlier transaction with this token was committed. Waits for one
/// whose COMMIT is still under way.
pub(super) fn leave_receipt(conn: &mut AnyConnection, token: &str) -> QueryResult<bool> {
    match conn {
        // In this very process: the answer to a COMMIT cannot be lost.
        AnyConnection::Sqlite(_) => Ok(true),
        AnyConnection::Postgres(conn) => postgres::leave_receipt(conn, token),
        AnyConnection::Mysql(conn) => mysql::leave_receipt(conn, token),
    }
}

/// A place in the order of the due tasks, by DueOn and then Id.
///
/// A server keeps the index entries of tasks that are no longer due until it has cleaned up. Whoever creates the runs of
/// a long backlog in parts begins each part where the last one ended, or walks all that are dead again each time.
#[derive(Clone, Copy, Debug)]
pub(super) struct DueFrom {
    due_on: Moment,
    task_id: i64,
}

impl DueFrom {
    /// Before all tasks.
    pub(super) fn beginning() -> Self {
        Self { due_on: Moment::beginning(), task_id: 0 }
    }
}

/// The first due task at or after a place.
pub(super) fn find_due(conn: &mut AnyConnection, from: DueFrom) -> QueryResult<Option<DueFrom>> {
    let found: Option<(Option<Moment>, i64)> = match conn {
        AnyConnection::Sqlite(conn) => sqlite::find_due(conn),
        AnyConnection::Postgres(conn) => postgres::find_due(conn, from),
        AnyConnection::Mysql(conn) => mysql::find_due(conn, from),
    }?;
    Ok(found.and_then(|(due_on, task_id)| Some(DueFrom { due_on: due_on?, task_id })))
}

/// Creates one scheduled run for each of the first `limit` due tasks at or after a place and returns how many were due.
/// Set-based; must run behind the gate `create-runs`.
pub(super) fn create_due_runs(conn: &mut AnyConnection, from: DueFrom, limit: i64) -> QueryResult<usize> {
    match conn {
        AnyConnection::Sqlite(conn) => sqlite::create_due_runs(conn, limit),
        AnyConnection::Postgres(conn) => postgres::create_due_runs(conn, from, limit),
        AnyConnection::Mysql(conn) => mysql::create_due_runs(conn, from, limit),
    }
}

/// What a hold is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClassAtHost<'a> {
    pub(super) class: &'a str,
    pub(super) host: &'a str,
}

/// Holds a class on a host for so many seconds from now, whether it is held already or not. One statement: of several
/// runners that find out at once that a handler cannot be started, none may fail over the row of another.
pub(super) fn hold_class(conn: &mut AnyConnection, held: &ClassAtHost<'_>, why: &str, secs: i64) -> QueryResult<()> {
    match conn {
        AnyConnection::Sqlite(conn) => sqlite::hold_class(conn, held, why, secs),
        AnyConnection::Postgres(conn) => postgres::hold_class(conn, held, why, secs),
        AnyConnection::Mysql(conn) => mysql::hold_class(conn, held, why, secs),
    }
}

/// Makes the connection fit for the next statement after one has failed.
pub(super) fn forget_failed_statement(conn: &mut AnyConnection) {
    if let AnyConnection::Mysql(conn) = conn {
        mysql::forget_statements(conn);
    }
}

/// Whether the closure that met this error may be run again.
pub(super) fn classify(engine: Engine, error: &DieselError) -> Repeat {
    let portable = classify_portably(error);
    // Of a COMMIT that failed for want of room the ROLLBACK may have failed too: nothing was left to be rolled back.
    let may_want_room = portable.is_none() || matches!(error, DieselError::RollbackErrorOnCommit { .. });
    if may_want_room && is_without_room(engine, &error.to_string()) {
        return Repeat::WhenRoom;
    }
    portable.unwrap_or_else(|| {
        let text = error.to_string();
        match engine {
            Engine::Sqlite => sqlite::classify(&text),
            Engine::Postgres => postgres::classify(&text),
            Engine::Mysql => mysql::classify(&text),
        }
    })
}

/// Whether this is said of a disk that is full.
fn is_without_room(engine: Engine, text: &str) -> bool {
    match engine {
        Engine::Sqlite => sqlite::is_without_room(text),
        Engine::Postgres => postgres::is_without_room(text),
        Engine::Mysql => mysql::is_without_room(text),
    }
}

/// For how many seconds the server has been up; `None` where there is none that could be away.
pub(super) fn server_up_secs(conn: &mut AnyConnection) -> QueryResult<Option<i64>> {
    match conn {
        AnyConnection::Sqlite(_) => Ok(None),
        AnyConnection::Postgres(conn) => postgres::server_up_secs(conn).map(Some),
        AnyConnection::Mysql(conn) => mysql::server_up_secs(conn).map(Some),
    }
}

/// The version of the database, for people.
pub(super) fn server_version(conn: &mut AnyConnection) -> QueryResult<String> {
    match conn {
        AnyConnection::Sqlite(conn) => sqlite::server_version(conn),
        AnyConnection::Postgres(conn) => postgres::server_version(conn),
        AnyConnection::Mysql(conn) => mysql::server_version(conn),
    }
}

/// A connection error without the address, which may hold a password.
fn unreachable(url: &DatabaseUrl, message: &str) -> StoreError {
    let failure = connect_failure::of(url, message);
    let message = url.without_secrets(message);
    // libpq indents what it adds with a tab.
    let message = message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    let url = url.to_string();
    if message.contains("session is read-only") {
        return StoreError::ReadOnly { url, message };
    }
    StoreError::Unreachable { url, message, failure }
}
