//! SQLite: the code that differs from the other engines.

pub(crate) mod kept_log;
pub(crate) mod lock_file;
mod syntax;

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection as _;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Bool, Text};
use diesel_migrations::{EmbeddedMigrations, embed_migrations};
use url::Url;

use super::insert_one::InsertOne;
use super::{DueFrom, log_of, unreachable, write_transaction};
use crate::address::url::DatabaseUrl;
use crate::backend::notices::{WaitNotice, holder_words};
use crate::base::connection::AnyConnection;
use crate::base::new_task::NewTaskRow;
use crate::base::rows::{DependencyRow, PrerequisiteRow};
use crate::base::schema::{task_queue, task_queue_dependencies};
use crate::base::sql::SqlMoment;
use crate::base::unmarked::processed_run;
use crate::error::{Repeat, StoreError, StoreResult};
use taskqueue_host::files::beside;
use taskqueue_host::files::disk::room_at;
use taskqueue_host::files::file_checks::{is_network_filesystem, may_write};

pub(super) const MIGRATIONS: EmbeddedMigrations = embed_migrations!("../../migrations/sqlite");

/// Before 3.51.3, a WAL file that many processes write and checkpoint can be corrupted (the WAL-reset bug).
pub(super) const OLDEST_SAFE_FOR_WAL: i32 = 3_051_003;

pub(super) fn connect(url: &DatabaseUrl) -> StoreResult<SqliteConnection> {
    let path = url.path().unwrap_or_default();
    let shown = |error: &dyn std::fmt::Display| cannot_open(url, &path, &error.to_string());
    refuse_network_filesystem(url, directory_of(&path))?;
    refuse_log_without_store(url, &path)?;
    create_private(&path).map_err(|error| shown(&error))?;
    refuse_what_is_no_file(url, &path)?;
    let absolute = path.canonicalize().map_err(|error| shown(&error))?;
    let address = address_of(url, &absolute, "rwc")?;
    let mut conn = SqliteConnection::establish(address.as_str()).map_err(|error| shown(&error))?;
    let locked = |error: diesel::result::Error| unless_locked(&path, &error).unwrap_or_else(|| shown(&error));
    prepare_session(&mut conn).map_err(locked)?;
    let is_safe = library_version(&mut conn).map_err(locked)? >= OLDEST_SAFE_FOR_WAL;
    if is_safe && patiently(&path, || wants_wal(&mut conn)).map_err(locked)? {
        let _lock = lock_file::acquire(&path, LOCK_WAIT, |error| shown(error))?;
        switch_to_wal(&mut conn).map_err(|error| shown(&error))?;
    }
    Ok(conn)
}

/// Creates and changes no store file. May write to the files beside it, without which a write-ahead log cannot be read.
pub(super) fn connect_to_look(url: &DatabaseUrl, limit: Duration) -> StoreResult<SqliteConnection> {
    let path = url.path().unwrap_or_default();
    let shown = |error: &dyn std::fmt::Display| cannot_open(url, &path, &error.to_string());
    let absolute = path.canonicalize().map_err(|error| shown(&error))?;
    refuse_what_is_no_file(url, &absolute)?;
    refuse_network_filesystem(url, absolute.parent().unwrap_or(&absolute))?;
    let address = address_of(url, &absolute, "rw")?;
    let mut conn = SqliteConnection::establish(address.as_str()).map_err(|error| shown(&error))?;
    let session = format!("PRAGMA busy_timeout = {}; PRAGMA query_only = ON;", limit.as_millis());
    conn.batch_execute(&session).map_err(|error| shown(&error))?;
    Ok(conn)
}

/// Returns the address of a file for SQLite, opened in this mode.
fn address_of(url: &DatabaseUrl, absolute: &Path, mode: &str) -> StoreResult<Url> {
    let no_path = |()| cannot_open(url, absolute, "it has no absolute path");
    let mut address = Url::from_file_path(absolute).map_err(no_path)?;
    address.query_pairs_mut().append_pair("mode", mode).extend_pairs(kept_log::option());
    Ok(address)
}

/// Connects to an empty database in memory; `url` is for messages.
pub(super) fn connect_to_memory(url: &DatabaseUrl) -> StoreResult<SqliteConnection> {
    SqliteConnection::establish(":memory:").map_err(|error| unreachable(url, &error.to_string()))
}

/// With less space, SQLite cannot create the index of the log, without which it reads nothing.
const LEAST_ROOM_BYTES: u64 = 64 << 10;

/// Opens a file that cannot be written at the moment, without its log, which cannot be read without an index.
pub(super) fn connect_frozen(url: &DatabaseUrl, error: &StoreError) -> StoreResult<Option<(SqliteConnection, String)>> {
    let path = url.path().unwrap_or_default();
    let shown = |error: &dyn std::fmt::Display| cannot_open(url, &path, &error.to_string());
    let (Ok(absolute), Ok(room)) = (path.canonicalize(), room_at(&path)) else { return Ok(None) };
    let why = if room.is_read_only {
        "cannot be written"
    } else if room.free_bytes < LEAST_ROOM_BYTES || is_without_room(&error.to_string()) {
        "is full"
    } else {
        return Ok(None);
    };
    let mut address = Url::from_file_path(&absolute).map_err(|()| shown(&"it has no absolute path"))?;
    address.set_query(Some("mode=ro&immutable=1"));
    let mut conn = SqliteConnection::establish(address.as_str()).map_err(|error| shown(&error))?;
    conn.batch_execute("PRAGMA query_only = ON;").map_err(|error| shown(&error))?;
    let has_log = log_of(&absolute).metadata().is_ok_and(|log| log.len() > 0);
    let newest = if has_log { "; the newest changes, in its log, cannot be read" } else { "" };
    Ok(Some((conn, format!("the disk of {url} {why}: the store is read from its file alone{newest}"))))
}

/// Same as [`connect_to_look`], with a longer wait; `None` if the file does not exist yet and can be created.
pub(super) fn connect_if_there(url: &DatabaseUrl) -> StoreResult<Option<SqliteConnection>> {
    let path = url.path().unwrap_or_default();
    let shown = |error: &dyn std::fmt::Display| cannot_open(url, &path, &error.to_string());
    if path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        refuse_network_filesystem(url, directory_of(&path))?;
        directory_of(&path).metadata().map_err(|error| shown(&error))?;
        return Ok(None);
    }
    refuse_what_is_no_file(url, &path)?;
    let mut conn = connect_to_look(url, BUSY_TIMEOUT)?;
    // The first read of the file reports best what is wrong with it.
    is_wal(&mut conn).map_err(|error| shown(&error))?;
    Ok(Some(conn))
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Without write permission, a process cannot even read, unless another process has the file open. The write-ahead log and its
/// index are files beside it, created by the first process and removed by the last.
fn cannot_open(url: &DatabaseUrl, path: &Path, error: &str) -> StoreError {
    let may_write = || [path, directory_of(path)].into_iter().all(may_write);
    let is_refused =
        error.contains("readonly database") || error.contains("unable to open database file") && !may_write();
    if !is_refused {
        return unreachable(url, error);
    }
    StoreError::ReadOnly {
        url: url.to_string(),
        message: format!(
            "this user may not write {} or its directory, which even reading needs, for the write-ahead log",
            path.display()
        ),
    }
}

fn create_private(path: &Path) -> std::io::Result<()> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match created {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map(drop),
    }
}

/// Rejects a log without a store. It would be taken for the log of the new store, and processes that have the old store open
/// still share its index.
fn refuse_log_without_store(url: &DatabaseUrl, path: &Path) -> StoreResult<()> {
    let length = |path: &Path| path.metadata().ok().map(|found| found.len());
    let is_left = |suffix: &&str| length(&beside(path, suffix)).is_some_and(|length| length > 0);
    // The log is checked first: a store always exists before its log.
    let Some(suffix) = ["-wal", "-shm"].into_iter().find(is_left) else { return Ok(()) };
    match path.metadata() {
        Ok(found) if found.len() > 0 || !found.is_file() || suffix == "-shm" => Ok(()),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(unreachable(
            url,
            &format!(
                "the store was removed or emptied, but not {}, which belongs to it",
                beside(path, suffix).display()
            ),
        )),
    }
}

/// Refuses paths for which SQLite's own message would mention permissions or a full disk.
fn refuse_what_is_no_file(url: &DatabaseUrl, path: &Path) -> StoreResult<()> {
    match path.metadata() {
        Ok(metadata) if !metadata.is_file() => Err(unreachable(url, "it is not a regular file")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(unreachable(url, "it is a link that leads to a file that does not exist"))
        }
        _ => Ok(()),
    }
}

/// How long a statement waits for a lock before it is repeated, and before the user is notified of the wait.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
/// How long another process may take to create or migrate the file.
const LOCK_WAIT: Duration = Duration::from_secs(60);

fn prepare_session(conn: &mut SqliteConnection) -> QueryResult<()> {
    // temp_store: the undo journals of statements, which triggers and checks require, were otherwise written to files in /tmp,
    // several writes per row of a batch.
    conn.batch_execute(&format!(
        "PRAGMA busy_timeout = {}; PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL; PRAGMA mmap_size = 0;
         PRAGMA journal_size_limit = 67108864; PRAGMA temp_store = MEMORY;",
        BUSY_TIMEOUT.as_millis()
    ))
}

fn is_wal(conn: &mut SqliteConnection) -> QueryResult<bool> {
    let mode: String =
        diesel::select(sql::<Text>("(SELECT journal_mode FROM pragma_journal_mode)")).get_result(conn)?;
    Ok(mode == "wal")
}

/// Repeats a query while another process has locked the whole file.
fn patiently<T>(path: &Path, mut ask: impl FnMut() -> QueryResult<T>) -> QueryResult<T> {
    let (started, mut notice) = (Instant::now(), WaitNotice::default());
    loop {
        match ask() {
            Err(error) if classify(&error.to_string()) == Repeat::Yes && started.elapsed() < LOCK_WAIT => {
                notice.after(started.elapsed(), path);
                std::thread::sleep(Duration::from_millis(20));
            }
            other => return other,
        }
    }
}

fn unless_locked(path: &Path, error: &diesel::result::Error) -> Option<StoreError> {
    let message = error.to_string();
    (classify(&message) == Repeat::Yes).then(|| {
        let holder = holder_words(path).map_or_else(String::new, |holder| format!(" by {holder}"));
        StoreError::Busy(format!("{message}{holder}"))
    })
}

/// Returns true if the file is to be switched to WAL. A file of another program is not changed before `db migrate` has created the
/// tables in it.
fn wants_wal(conn: &mut SqliteConnection) -> QueryResult<bool> {
    Ok(!is_wal(conn)? && !is_foreign(conn)?)
}

/// Needs exclusive access to the file, which SQLite's busy timeout does not cover. The lock excludes other processes that do the
/// same, and readers finish soon.
fn switch_to_wal(conn: &mut SqliteConnection) -> QueryResult<()> {
    let started = Instant::now();
    loop {
        match conn.batch_execute("PRAGMA journal_mode = WAL;") {
            Err(error) if classify(&error.to_string()) == Repeat::Yes && started.elapsed() < LOCK_WAIT => {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

/// Returns the version of the library. The constant is that of the bindings, so it is right only for the bundled library.
pub(super) fn library_version(conn: &mut SqliteConnection) -> QueryResult<i32> {
    if cfg!(feature = "bundled") {
        return Ok(libsqlite3_sys::SQLITE_VERSION_NUMBER);
    }
    let text: String = diesel::select(sql::<Text>("sqlite_version()")).get_result(conn)?;
    let part = |index| text.split('.').nth(index).and_then(|part| part.parse::<i32>().ok()).unwrap_or(0);
    Ok(part(0) * 1_000_000 + part(1) * 1_000 + part(2))
}

/// File locks and shared memory do not work across hosts: the file would eventually be corrupted.
fn refuse_network_filesystem(url: &DatabaseUrl, directory: &Path) -> StoreResult<()> {
    let is_network = is_network_filesystem(directory)
        .map_err(|error| unreachable(url, &format!("{}: {error}", directory.display())))?;
    if is_network {
        return Err(StoreError::BadAddress(format!(
            "{} is on a network file system, where SQLite loses data; use PostgreSQL or MySQL for several hosts",
            directory.display()
        )));
    }
    Ok(())
}

pub(super) fn has_migrations_table(conn: &mut SqliteConnection) -> QueryResult<bool> {
    let found = "EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '__diesel_schema_migrations')";
    diesel::select(sql::<Bool>(found)).get_result(conn)
}

/// Uses one statement for both conditions: another process may be migrating.
pub(super) fn is_foreign(conn: &mut SqliteConnection) -> QueryResult<bool> {
    let found = "(SELECT COUNT(*) > 0 AND SUM(name = '__diesel_schema_migrations') = 0 FROM sqlite_schema
                  WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\')";
    diesel::select(sql::<Bool>(found)).get_result(conn)
}

pub(super) fn with_migration_lock<T>(
    conn: &mut AnyConnection,
    url: &DatabaseUrl,
    work: impl FnOnce(&mut AnyConnection) -> StoreResult<T>,
) -> StoreResult<T> {
    let path = url.path().unwrap_or_default();
    let _lock = lock_file::acquire(&path, LOCK_WAIT, |error| unreachable(url, &error.to_string()))?;
    let done = write_transaction(conn, work)?;
    // Writes the tables into the file itself, even if the log is kept: a copy without the log must not be an empty store.
    let _ = conn.batch_execute("PRAGMA wal_checkpoint(PASSIVE)");
    Ok(done)
}

pub(in super::super) fn insert_tasks(conn: &mut SqliteConnection, rows: &[NewTaskRow]) -> QueryResult<Vec<i64>> {
    // One prepared statement, executed row by row, is SQLite's fastest way.
    rows.iter().map(|row| InsertOne::new(row, None).get_result(conn)).collect()
}

/// BEGIN IMMEDIATE already excludes all other writers.
pub(in super::super) fn lock_prerequisites(
    conn: &mut SqliteConnection,
    ids: &[i64],
) -> QueryResult<Vec<PrerequisiteRow>> {
    task_queue::table
        .filter(task_queue::id.eq_any(ids))
        .order(task_queue::id)
        .select(PrerequisiteRow::as_select())
        .load(conn)
}

pub(in super::super) fn insert_dependencies(conn: &mut SqliteConnection, rows: &[DependencyRow]) -> QueryResult<()> {
    rows.iter()
        .try_for_each(|row| diesel::insert_into(task_queue_dependencies::table).values(row).execute(conn).map(drop))
}

/// Returns the id of the last row inserted by this connection.
pub(super) fn last_inserted_id(conn: &mut SqliteConnection) -> QueryResult<i64> {
    diesel::select(sql::<BigInt>("last_insert_rowid()")).get_result(conn)
}

/// Starts from the beginning each time: index entries of tasks that are no longer due are removed at once.
pub(super) fn find_due(conn: &mut SqliteConnection, _from: DueFrom) -> QueryResult<Option<(Option<SqlMoment>, i64)>> {
    use task_queue::dsl;
    dsl::task_queue
        .filter(dsl::due_on.le(sql("strftime('%Y-%m-%d %H:%M:%f000', 'now')")))
        .filter(processed_run().is_null())
        .order((dsl::due_on, dsl::id))
        .select((dsl::due_on, dsl::id))
        .first(conn)
        .optional()
}

pub(super) fn create_due_runs(conn: &mut SqliteConnection, _from: DueFrom, limit: i64) -> QueryResult<usize> {
    diesel::sql_query(
        r#"INSERT INTO "TaskQueueRuns" ("TaskQueueId", "TaskClass", "Priority", "Attempt", "LimitKey", "Tag")
           SELECT t."Id", t."TaskClass", t."Priority", t."Attempts" + 1, t."LimitKey", t."Tag"
           FROM "TaskQueue" AS t
           WHERE t."DueOn" <= strftime('%Y-%m-%d %H:%M:%f000', 'now')
             AND NOT EXISTS (SELECT 1 FROM "TaskQueueRuns" AS r WHERE r."OpenTaskId" = t."Id")
           ORDER BY t."DueOn", t."Id" LIMIT ?"#,
    )
    .bind::<BigInt, _>(limit)
    .execute(conn)?;
    // Also repairs tasks whose open run is not recorded in their row, which only manual changes of the tables can cause.
    diesel::sql_query(
        r#"UPDATE "TaskQueue"
           SET "CurrentRunId" = r."Id", "UpdatedOn" = strftime('%Y-%m-%d %H:%M:%f000', 'now')
           FROM (SELECT d."Id" AS "TaskId", o."Id"
                 FROM (SELECT t."Id" FROM "TaskQueue" AS t
                       WHERE t."DueOn" <= strftime('%Y-%m-%d %H:%M:%f000', 'now')
                         AND NOT EXISTS (SELECT 1 FROM "TaskQueueRuns" AS p
                                         WHERE p."OpenTaskId" = t."Id" AND p."Status" = 'processing')
                       ORDER BY t."DueOn", t."Id" LIMIT ?) AS d
                 JOIN "TaskQueueRuns" AS o ON o."OpenTaskId" = d."Id") AS r
           WHERE "TaskQueue"."Id" = r."TaskId""#,
    )
    .bind::<BigInt, _>(limit)
    .execute(conn)
}

pub(super) fn classify(text: &str) -> Repeat {
    // SQLite's messages are compiled in and always English.
    if text.contains("database is locked") || text.contains("database table is locked") {
        Repeat::Yes
    } else {
        Repeat::Never
    }
}

/// SQLite reports a full disk only for some writes; a quota, or a write-ahead log or index that cannot grow, is reported as an
/// I/O error.
pub(super) fn is_without_room(text: &str) -> bool {
    text.contains("database or disk is full") || text.contains("disk I/O error")
}

pub(super) fn server_version(conn: &mut SqliteConnection) -> QueryResult<String> {
    let version: String = diesel::select(sql::<Text>("sqlite_version()")).get_result(conn)?;
    Ok(format!("SQLite {version}"))
}
