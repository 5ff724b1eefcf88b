//! MySQL and MariaDB: the code that differs from the other engines.

pub(crate) mod insert_many;
pub(crate) mod mysql_code;
pub(crate) mod snapshot;
mod syntax;

use std::error::Error;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::connection::{CacheSize, SimpleConnection as _};
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Bool, Nullable, Text, Timestamp};
use diesel_migrations::{EmbeddedMigrations, embed_migrations};

use url::Url;

use super::insert_one::InsertOne;
use super::watch::Connecting;
use super::{DueFrom, unreachable};
use crate::address::url::DatabaseUrl;
use crate::backend::mysql::insert_many::InsertMany;
use crate::base::connection::AnyConnection;
use crate::base::new_task::NewTaskRow;
use crate::base::prepared::prepared;
use crate::base::rows::{DependencyRow, IdRow, PrerequisiteRow};
use crate::base::schema::{task_queue_dependencies, task_queue_receipts};
use crate::base::sql::{ANY_RETRIES, SqlMoment};
use crate::error::{Repeat, StoreError, StoreResult};
use taskqueue_host::net::sockets;

pub(super) const MIGRATIONS: EmbeddedMigrations = embed_migrations!("../../migrations/mysql");

/// The port of an address that has none.
pub(super) const DEFAULT_PORT: u16 = 3306;
/// Rows of one bulk statement: below the smallest usual max_allowed_packet for data of a few kilobytes.
const ROWS_PER_STATEMENT: usize = 500;
/// Bytes of task data in one bulk statement; max_allowed_packet is 16 MiB by default.
const BYTES_PER_STATEMENT: usize = 4 << 20;

/// Connects to the first host that answers in time and is writable.
pub(super) fn connect(url: &DatabaseUrl) -> StoreResult<MysqlConnection> {
    taskqueue_tls::init();
    let mut problems = Vec::new();
    for host in url.hosts() {
        match connect_in_time(&host.address, url) {
            Ok(conn) => return Ok(conn),
            Err(problem) if url.hosts().len() == 1 => problems.push(problem),
            Err(problem) => problems.push(format!("{}: {problem}", host.name)),
        }
    }
    Err(unreachable(url, &problems.join("; ")))
}

/// MariaDB and MySQL use different settings for the time limit of statements, and each ignores the setting for the other.
pub(super) fn connect_to_look(url: &DatabaseUrl, limit: Duration) -> StoreResult<MysqlConnection> {
    let mut conn = connect(url)?;
    let (millis, secs) = (limit.as_millis(), limit.as_secs_f64());
    conn.batch_execute(&format!(
        "SET SESSION TRANSACTION READ ONLY;
         SET lock_wait_timeout = 1 /*M!100101 , max_statement_time = {secs:.3} */ /*!50708 , max_execution_time = {millis} */;"
    ))
    .map_err(|error| unreachable(url, &error.to_string()))?;
    Ok(conn)
}

/// Diesel cannot pass a timeout to the client library, which by default tries without a limit. If the server never answers, the
/// thread is abandoned.
fn connect_in_time(address: &str, url: &DatabaseUrl) -> Result<MysqlConnection, String> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let (address, url_of_thread, limit) = (address.to_owned(), url.clone(), url.connect_timeout());
    let connect = move || {
        // If it is too late, the result is discarded.
        let _ = sender.send(connect_to_host(&address, &url_of_thread).map_err(|error| error.to_string()));
    };
    thread::Builder::new().name("connect".to_owned()).spawn(connect).map_err(|error| error.to_string())?;
    let too_late = |_| Err(format!("timeout: no answer within {} seconds", limit.as_secs()));
    receiver.recv_timeout(limit).unwrap_or_else(too_late)
}

fn connect_to_host(address: &str, url: &DatabaseUrl) -> Result<MysqlConnection, Box<dyn Error>> {
    let connecting = Connecting::begin();
    let mut conn = MysqlConnection::establish(address)?;
    // The server knows the port of the client, but reports it only to some users.
    connecting.watch(&mut conn, url, is_of_client, |_| None);
    // libpq gets these options in its address; this client library has no such option.
    sockets::notice_dead_peers(Url::parse(address)?.port().unwrap_or(DEFAULT_PORT));
    // READ COMMITTED: no gap locks, so that claims and inserts do not deadlock, and no writes based on a stale snapshot.
    // Strict mode: a value that does not fit is an error and is not truncated.
    // Messages in English: Diesel does not pass error numbers on, so that some errors can only be recognized by their text.
    // If a host disappears in the middle of a claim, its table locks are held until the server ends the session, by default after
    // eight hours. Sessions of this program that are idle for longer, during a long handler, are reopened when needed.
    // The collation of the columns: if a value has another collation, MariaDB sorts all rows of a status instead of reading them
    // in index order.
    // One statement, and not a batch, which costs two more round trips. MariaDB and MySQL name the isolation level differently.
    diesel::sql_query(
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin, time_zone = '+00:00',
             sql_mode = 'STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO',
             innodb_lock_wait_timeout = 30, lock_wait_timeout = 60, wait_timeout = 60, lc_messages = 'en_US',
             /*M!100101 tx_isolation */ /*!50720 transaction_isolation */ = 'READ-COMMITTED'",
    )
    .execute(&mut conn)?;
    if is_read_only(&mut conn)? && !url.takes_standby() {
        return Err("session is read-only: the server is a replica or was made read-only".into());
    }
    Ok(conn)
}

/// Reads a table as well: a node that is not in its cluster answers all other queries, and another host may be ready.
fn is_read_only(conn: &mut MysqlConnection) -> QueryResult<bool> {
    // super_read_only, which MariaDB does not know, implies read_only.
    const IS_READ_ONLY: &str = "CAST(@@GLOBAL.read_only AS CHAR) NOT IN ('0', 'OFF')";
    let from = "FROM (SELECT 1) AS one LEFT JOIN `__diesel_schema_migrations` ON FALSE";
    let with_table = diesel::select(sql::<Bool>(&format!("{IS_READ_ONLY} {from}"))).get_result(conn);
    match with_table {
        Err(error) if error.to_string().contains(NOT_READY) => Err(error),
        // The table may be missing, or closed to this user.
        Err(_) => diesel::select(sql::<Bool>(IS_READ_ONLY)).get_result(conn),
        found => found,
    }
}

fn is_of_client(peer: &sockets::Peer) -> bool {
    match peer {
        sockets::Peer::Internet => true,
        sockets::Peer::File(path) => path.ends_with(".sock"),
    }
}

/// Queries its rows: the catalogue hides tables from users without privileges on them.
pub(super) fn has_migrations_table(conn: &mut MysqlConnection) -> QueryResult<bool> {
    match diesel::sql_query("SELECT 1 FROM `__diesel_schema_migrations` LIMIT 0").execute(conn) {
        Ok(_) => Ok(true),
        Err(error) if error.to_string().ends_with("doesn't exist") => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) fn with_migration_lock<T>(
    conn: &mut AnyConnection,
    _url: &DatabaseUrl,
    work: impl FnOnce(&mut AnyConnection) -> StoreResult<T>,
) -> StoreResult<T> {
    // The name contains that of the database: GET_LOCK has one namespace for the whole server.
    const LOCK: &str = "CONCAT('taskqueue.migrate.', LEFT(SHA2(DATABASE(), 256), 32))";
    let got: Option<i64> =
        diesel::select(sql::<Nullable<BigInt>>(&format!("GET_LOCK({LOCK}, 60)"))).get_result(conn)?;
    if got != Some(1) {
        return Err(StoreError::Busy("another process has been migrating it for 60 seconds".to_owned()));
    }
    let result = work(conn);
    // The server releases the lock with the connection at the latest.
    let _ = diesel::select(sql::<Nullable<BigInt>>(&format!("RELEASE_LOCK({LOCK})"))).execute(conn);
    result
}

/// LOCK TABLES commits an open transaction, and START TRANSACTION releases the locks: therefore autocommit is switched off, and
/// COMMIT precedes UNLOCK TABLES.
pub(super) fn under_table_locks<T>(
    conn: &mut AnyConnection,
    keeps_events: bool,
    work: impl FnOnce(&mut AnyConnection) -> StoreResult<T>,
) -> StoreResult<T> {
    // After any failure from here on, autocommit must be switched on again: otherwise, later statements of this connection would
    // be part of a transaction that never ends.
    //
    // A claim takes milliseconds. If a host disappears in the middle of one, or while it waits for the tables, they are free
    // again after ten seconds.
    // Under LOCK TABLES, no other table can be read.
    let events = if keeps_events { ", `TaskQueueEvents` WRITE" } else { "" };
    let locked = conn.batch_execute(&format!(
        "SET autocommit = 0, wait_timeout = 10; LOCK TABLES `TaskQueueRuns` WRITE, `TaskQueue` WRITE,
         `TaskQueuePauses` READ, `TaskQueueClassLimits` READ, `TaskQueueKeyLimits` READ, `TaskQueueRejections` READ,
         `TaskQueueStarts` WRITE{events};"
    ));
    let result = locked.map_err(StoreError::from).and_then(|()| work(conn)).and_then(|value| {
        conn.batch_execute("COMMIT")?;
        Ok(value)
    });
    if result.is_err() {
        let _ = conn.batch_execute("ROLLBACK");
    }
    let unlocked = conn.batch_execute("UNLOCK TABLES; SET autocommit = 1, wait_timeout = 60;");
    let value = result?;
    unlocked?;
    Ok(value)
}

/// LOCK TABLES locks its tables in the order of their names. A transaction deadlocks with it if it writes TaskQueueRuns and then
/// uses TaskQueue, or TaskQueuePauses and then TaskQueueEvents, or if it reads TaskQueue before it inserts. The server then
/// always aborts that transaction, repeatedly while claims go on. A locking read takes the metadata lock that a write needs. A
/// plain read takes a weaker one, which deadlocks when it is upgraded. As the row does not exist, nothing else is locked.
pub(super) fn enter_task_table(conn: &mut MysqlConnection) -> QueryResult<()> {
    prepared("SELECT 1 FROM `TaskQueue` WHERE `Id` = 0 FOR UPDATE").execute(conn).map(drop)
}

/// Takes the metadata locks of both tables, in the order of their names, by reads that lock no row.
pub(super) fn share_runs(conn: &mut MysqlConnection) -> QueryResult<()> {
    enter_task_table(conn)?;
    prepared("SELECT 1 FROM `TaskQueueRuns` WHERE `Id` = 0 FOR UPDATE").execute(conn).map(drop)
}

/// Queries the id with a separate statement, which commits nothing: this client library does not support MariaDB's RETURNING.
pub(super) fn insert_one(conn: &mut MysqlConnection, insert: InsertOne<'_>) -> QueryResult<i64> {
    insert.execute(conn)?;
    last_inserted_id(conn)
}

pub(in super::super) fn insert_tasks(conn: &mut MysqlConnection, rows: &[NewTaskRow]) -> QueryResult<Vec<i64>> {
    if let [row] = rows {
        return Ok(vec![insert_one(conn, InsertOne::new(row, None))?]);
    }
    let mut ids = Vec::with_capacity(rows.len());
    let mut rest = rows;
    while !rest.is_empty() {
        let (chunk, later) = rest.split_at(statement_rows(rest));
        InsertMany::new(chunk).execute(conn)?;
        ids.extend(inserted_ids(conn, chunk.len())?);
        rest = later;
    }
    Ok(ids)
}

/// Returns the ids of the rows that the last statement of this connection has inserted: an INSERT with a known number of rows gets
/// consecutive ids.
pub(super) fn inserted_ids(conn: &mut MysqlConnection, count: usize) -> QueryResult<Vec<i64>> {
    #[derive(QueryableByName)]
    struct FirstId {
        #[diesel(sql_type = BigInt)]
        first: i64,
        #[diesel(sql_type = BigInt)]
        step: i64,
    }
    const FIND: &str = "SELECT CAST(LAST_INSERT_ID() AS SIGNED) AS first, @@auto_increment_increment AS step";
    let FirstId { first, step } = prepared(FIND).get_result(conn)?;
    Ok((first..).step_by(usize::try_from(step).unwrap_or(1)).take(count).collect())
}

/// Uses the older of two syntaxes, which MariaDB supports too.
pub(in super::super) fn lock_prerequisites(
    conn: &mut MysqlConnection,
    ids: &[i64],
) -> QueryResult<Vec<PrerequisiteRow>> {
    // Numbers and nothing else.
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let query = format!(
        "SELECT `Id` AS id, `LastStatus` AS last_status, `FailedRetries` AS failed_retries,
             COALESCE(`RetryLimit`, `MaxRetries`, {ANY_RETRIES}) AS allowed_retries, `QuarantinedOn` AS quarantined_on,
             `CurrentRunId` AS current_run_id
         FROM `TaskQueue` WHERE `Id` IN ({}) ORDER BY `Id` LOCK IN SHARE MODE",
        ids.join(", ")
    );
    // The statement differs for each list of ids, so it is not kept.
    diesel::sql_query(query).load(conn)
}

pub(in super::super) fn insert_dependencies(conn: &mut MysqlConnection, rows: &[DependencyRow]) -> QueryResult<()> {
    rows.chunks(ROWS_PER_STATEMENT)
        .try_for_each(|chunk| diesel::insert_into(task_queue_dependencies::table).values(chunk).execute(conn).map(drop))
}

/// Returns the id of the last row inserted by this connection.
pub(super) fn last_inserted_id(conn: &mut MysqlConnection) -> QueryResult<i64> {
    let last: IdRow = prepared("SELECT CAST(LAST_INSERT_ID() AS SIGNED) AS id").get_result(conn)?;
    Ok(last.id)
}

/// Returns a time as text: Diesel sends times as TIMESTAMP. MariaDB does not accept those before 1970, and converts those from 2038
/// on to NULL.
pub(super) fn as_text(moment: SqlMoment) -> String {
    DateTime::<Utc>::from(moment).format("%F %T%.6f").to_string()
}

fn statement_rows(rows: &[NewTaskRow]) -> usize {
    let mut bytes = 0;
    let fitting = rows.iter().take(ROWS_PER_STATEMENT).take_while(|row| {
        bytes += row.task_data.len() + row.meta.as_ref().map_or(0, String::len);
        bytes <= BYTES_PER_STATEMENT
    });
    fitting.count().max(1)
}

/// The due tasks `q` at or after a position that have no run in progress. The comparison of pairs is written out because it could
/// not use an index here. A scalar subquery, because with NOT EXISTS, MariaDB would read all open runs of all tasks first,
/// whatever the limit.
const DUE_FROM: &str = "(q.`DueOn` > CAST(? AS DATETIME(6)) OR (q.`DueOn` = CAST(? AS DATETIME(6)) AND q.`Id` >= ?))
    AND q.`DueOn` <= UTC_TIMESTAMP(6)
    AND (SELECT p.`Id` FROM `TaskQueueRuns` AS p
         WHERE p.`OpenTaskId` = q.`Id` AND p.`Status` = 'processing' LIMIT 1) IS NULL";

#[derive(QueryableByName)]
struct MysqlDueRow {
    #[diesel(sql_type = Nullable<Timestamp>, column_name = "DueOn")]
    due_on: Option<SqlMoment>,
    #[diesel(sql_type = BigInt, column_name = "Id")]
    id: i64,
}

pub(super) fn find_due(conn: &mut MysqlConnection, from: DueFrom) -> QueryResult<Option<(Option<SqlMoment>, i64)>> {
    let due_on = as_text(from.due_on);
    let found: Option<MysqlDueRow> = diesel::sql_query(format!(
        "SELECT q.`DueOn`, q.`Id` FROM `TaskQueue` AS q WHERE {DUE_FROM} ORDER BY q.`DueOn`, q.`Id` LIMIT 1"
    ))
    .bind::<Text, _>(&due_on)
    .bind::<Text, _>(&due_on)
    .bind::<BigInt, _>(from.task_id)
    .get_result(conn)
    .optional()?;
    Ok(found.map(|row| (row.due_on, row.id)))
}

pub(super) fn create_due_runs(conn: &mut MysqlConnection, from: DueFrom, limit: i64) -> QueryResult<usize> {
    let due_on = as_text(from.due_on);
    // First, so that the next statement reads every committed start: a start changes no row of a task.
    diesel::sql_query(format!(
        "SELECT q.`Id` FROM `TaskQueue` AS q WHERE {DUE_FROM} ORDER BY q.`DueOn`, q.`Id` LIMIT ? FOR UPDATE"
    ))
    .bind::<Text, _>(&due_on)
    .bind::<Text, _>(&due_on)
    .bind::<BigInt, _>(from.task_id)
    .bind::<BigInt, _>(limit)
    .execute(conn)?;
    // FOR UPDATE: a task must not be cancelled between the two statements.
    // The limit is inside the subquery. If a table is both read and written, rows are buffered first, and an outer limit would
    // apply only after all due rows were read and locked.
    diesel::sql_query(format!(
        "INSERT INTO `TaskQueueRuns` (`TaskQueueId`, `TaskClass`, `Priority`, `Attempt`, `LimitKey`, `Tag`)
         SELECT d.`Id`, d.`TaskClass`, d.`Priority`, d.`Attempts` + 1, d.`LimitKey`, d.`Tag`
         FROM (SELECT q.`Id`, q.`TaskClass`, q.`Priority`, q.`Attempts`, q.`LimitKey`, q.`Tag`, q.`DueOn` FROM `TaskQueue` AS q
               WHERE {DUE_FROM} ORDER BY q.`DueOn`, q.`Id` LIMIT ? FOR UPDATE) AS d
         LEFT JOIN `TaskQueueRuns` AS r ON r.`OpenTaskId` = d.`Id`
         WHERE r.`Id` IS NULL
         ORDER BY d.`DueOn`, d.`Id`
         ON DUPLICATE KEY UPDATE `TaskQueueId` = d.`Id`"
    ))
    .bind::<Text, _>(&due_on)
    .bind::<Text, _>(&due_on)
    .bind::<BigInt, _>(from.task_id)
    .bind::<BigInt, _>(limit)
    .execute(conn)?;
    // Also repairs tasks whose open run is not recorded in their row, which only manual changes of the tables can cause.
    diesel::sql_query(format!(
        "UPDATE `TaskQueue` AS t
         JOIN (SELECT d.`Id` AS `TaskId`, r.`Id` AS `RunId`
               FROM (SELECT q.`Id` FROM `TaskQueue` AS q WHERE {DUE_FROM}
                     ORDER BY q.`DueOn`, q.`Id` LIMIT ?) AS d
               JOIN `TaskQueueRuns` AS r ON r.`OpenTaskId` = d.`Id`) AS o ON o.`TaskId` = t.`Id`
         SET t.`CurrentRunId` = o.`RunId`, t.`UpdatedOn` = UTC_TIMESTAMP(6)"
    ))
    .bind::<Text, _>(&due_on)
    .bind::<Text, _>(&due_on)
    .bind::<BigInt, _>(from.task_id)
    .bind::<BigInt, _>(limit)
    .execute(conn)
}

/// Empties the cache of prepared statements. A statement that failed once keeps its error, which Diesel reports at the next use
/// without executing it: a repeat after a deadlock could never succeed. Switching the cache off empties it.
pub(in super::super) fn forget_statements(conn: &mut MysqlConnection) {
    conn.set_prepared_statement_cache_size(CacheSize::Disabled);
    conn.set_prepared_statement_cache_size(CacheSize::Unbounded);
}

pub(super) fn leave_receipt(conn: &mut MysqlConnection, token: &str) -> QueryResult<bool> {
    let row = task_queue_receipts::token.eq(token);
    Ok(diesel::insert_or_ignore_into(task_queue_receipts::table).values(row).execute(conn)? == 1)
}

/// Told its index: MySQL may sort all tasks with the status instead.
pub(super) fn count_of_class(conn: &mut MysqlConnection, class: &str, status: &str, limit: i64) -> QueryResult<i64> {
    #[derive(QueryableByName)]
    struct Counted {
        #[diesel(sql_type = BigInt)]
        tasks: i64,
    }
    const COUNT: &str = "
        SELECT COUNT(*) AS tasks FROM (
            SELECT `Id` FROM `TaskQueue` FORCE INDEX (`TaskQueueByClass`) WHERE `TaskClass` = ? AND `LastStatus` = ?
            ORDER BY `TaskClass`, `LastStatus`, `ScheduledOn`, `Id` LIMIT ?) AS counted";
    let query = prepared(COUNT).bind::<Text, _>(class).bind::<Text, _>(status).bind::<BigInt, _>(limit);
    query.get_result::<Counted>(conn).map(|row| row.tasks)
}

/// Messages about a lost connection: from the client library, and from the server when it stops (1053), ends the session (1927,
/// 3169) or has left its cluster (1047).
const LOST: [&str; 7] = [
    "gone away",
    "Lost connection",
    "Can't connect",
    "Server shutdown in progress",
    "Connection was killed",
    "was disconnected by the server",
    NOT_READY,
];
/// The message of a node that is not in its Galera cluster (1047).
const NOT_READY: &str = "WSREP has not yet prepared node";
/// Messages of a server that is read-only (1290 twice, 1836, 1792): another one may be about to take over.
const READ_ONLY: [&str; 4] =
    ["--read-only option", "--super-read-only option", "read-only mode", "READ ONLY transaction"];

pub(super) fn classify(text: &str) -> Repeat {
    // Diesel does not recognize 1205, 2006 and 2013, and passes on no error numbers: the texts are compared, which are English in
    // these sessions.
    if LOST.iter().any(|lost| text.contains(lost)) {
        Repeat::AfterReconnect
    } else if READ_ONLY.iter().any(|read_only| text.contains(read_only)) {
        Repeat::AfterFailover
    } else {
        Repeat::FewTimes
    }
}

/// 1021, 1114 and messages that quote the system's errors 28 and 122.
pub(super) fn is_without_room(text: &str) -> bool {
    let is_table_full = text.contains("The table '") && text.contains("' is full");
    is_table_full || ["Disk full", "No space left on device", "Disk quota exceeded"].iter().any(|no| text.contains(no))
}

/// Returns the value of a variable or status as SHOW writes it; `None` if the server does not know it.
pub(super) fn shown(conn: &mut MysqlConnection, what: &str) -> QueryResult<Option<String>> {
    #[derive(QueryableByName)]
    struct ShownRow {
        #[diesel(sql_type = Text, column_name = "Value")]
        value: String,
    }
    let row: Option<ShownRow> = diesel::sql_query(format!("SHOW {what}")).get_result(conn).optional()?;
    Ok(row.map(|row| row.value))
}

pub(super) fn server_up_secs(conn: &mut MysqlConnection) -> QueryResult<Option<i64>> {
    // The tables with this value differ between MySQL and MariaDB, and may be switched off.
    let uptime = shown(conn, "GLOBAL STATUS LIKE 'Uptime'")?.ok_or(diesel::result::Error::NotFound)?;
    Ok(Some(uptime.parse().unwrap_or(0)))
}

pub(super) fn server_version(conn: &mut MysqlConnection) -> QueryResult<String> {
    let version: String = diesel::select(sql::<Text>("VERSION()")).get_result(conn)?;
    Ok(if version.contains("MariaDB") { version.replace("-MariaDB", " MariaDB") } else { format!("MySQL {version}") })
}
