//! PostgreSQL: the code that differs from the other engines.

pub(crate) mod copy;
pub(crate) mod parameters;
mod shared_sessions;
pub(crate) mod sqlstate;
mod syntax;

use std::time::Duration;

use diesel::connection::SimpleConnection as _;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::result::QueryResult;
use diesel::sql_types::{Array, BigInt, Bool, Integer, Nullable, Text, Timestamp};
use diesel_migrations::{EmbeddedMigrations, embed_migrations};

use super::batch::FoundRow;
use super::insert_one::InsertOne;
use super::watch::Connecting;
use crate::address::url::DatabaseUrl;
use crate::backend::local_settings::SETTINGS;
use crate::backend::postgres::copy::copy_tasks;
use crate::backend::{DueFrom, END_CHANNEL, unreachable};
use crate::base::connection::AnyConnection;
use crate::base::new_task::NewTaskRow;
use crate::base::prepared::prepared;
use crate::base::rows::{DependencyRow, IdRow, PrerequisiteRow};
use crate::base::schema::{task_queue, task_queue_receipts};
use crate::base::sql::SqlMoment;
use crate::base::unmarked::processed_run;
use crate::error::{Repeat, StoreResult};
use taskqueue_host::net::sockets::{self, LibrarySocket};

pub(super) const MIGRATIONS: EmbeddedMigrations = embed_migrations!("../../migrations/postgres");

/// "taskqueue" as a number: the advisory lock of migrations, one per database.
const MIGRATION_LOCK: i64 = 0x7461_736b_7175_6575;

/// "taskends" as a number: the advisory lock that all processes waiting for the end of a task share. It is released with its
/// session.
const WAITER_LOCK: i64 = 0x7461_736b_656e_6473;

/// The number of rows from which a COPY is faster than one statement per row.
const WORTH_A_COPY: usize = 4;
/// Rows of one bulk statement: enough to amortize the round trip, few enough for the server's memory.
const ROWS_PER_STATEMENT: usize = 5_000;

pub(super) fn connect(url: &DatabaseUrl) -> StoreResult<PgConnection> {
    taskqueue_tls::init();
    let shown = |error: &dyn std::fmt::Display| unreachable(url, &error.to_string());
    let connecting = Connecting::begin();
    let mut conn = PgConnection::establish(url.address()).map_err(|error| shown(&error))?;
    let shares_sessions = shared_sessions::shares_sessions(url, &mut conn)?;
    // Behind a pooler, the server sees the port of the pooler.
    let port = |conn: &mut PgConnection| if shares_sessions { None } else { port_of_client(conn).ok().flatten() };
    connecting.watch(&mut conn, url, is_of_client, port);
    if shares_sessions {
        return Ok(conn);
    }
    // UTC makes Diesel's timestamp without zone equal the instant in the timestamptz columns. The time limits prevent a dead
    // client from holding its locks without limit. Generic plans: with a large backlog, planning the claim's lookups each time
    // would cost more than the lookups, and each statement has only one good plan. No JIT: its compiler takes longer than any
    // statement. No bitmap scans: they lose the order of an index, and with stale estimates all rows would be sorted to return a
    // few.
    conn.batch_execute(&SETTINGS.map(|setting| format!("SET {setting};")).concat()).map_err(|error| shown(&error))?;
    Ok(conn)
}

pub(super) fn connect_to_look(url: &DatabaseUrl, limit: Duration) -> StoreResult<PgConnection> {
    let mut conn = connect(url)?;
    if url.pooler().pooler().shares_sessions() {
        return Ok(conn);
    }
    let millis = limit.as_millis();
    conn.batch_execute(&format!(
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY;
         SET statement_timeout = '{millis}ms'; SET lock_timeout = '{millis}ms';",
    ))
    .map_err(|error| unreachable(url, &error.to_string()))?;
    Ok(conn)
}

/// Connects and listens to these channels. Returns the connection and its socket. The socket is missing if the server cannot
/// listen (a standby). It is also missing if it cannot be distinguished from that of another thread's connection (a Unix socket,
/// or behind a proxy). Nothing is missed then, because listeners also poll.
pub(super) fn connect_listening(
    url: &DatabaseUrl,
    channels: &[&str],
) -> StoreResult<(AnyConnection, Option<LibrarySocket>)> {
    let known = sockets::connected_sockets();
    let mut conn = connect(url)?;
    if url.pooler().pooler().shares_sessions() {
        // Another session would be notified. Nothing is missed: the caller also polls.
        return Ok((AnyConnection::Postgres(conn), None));
    }
    let mut new = sockets::new_ones(&known, is_of_client);
    if new.len() > 1 {
        // Another thread has connected at the same time.
        let port = port_of_client(&mut conn)?;
        new.retain(|socket| socket.own_port().is_some() && socket.own_port().map(i32::from) == port);
    }
    let socket = if new.len() == 1 { new.pop() } else { None };
    let statements: Vec<String> = channels.iter().map(|channel| format!("LISTEN {channel}")).collect();
    let listens = conn.batch_execute(&statements.join("; ")).is_ok();
    Ok((AnyConnection::Postgres(conn), socket.filter(|_| listens)))
}

/// Returns the client port of this connection as the server sees it; `None` for a Unix socket.
fn port_of_client(conn: &mut PgConnection) -> QueryResult<Option<i32>> {
    diesel::select(sql::<Nullable<Integer>>("inet_client_port()")).get_result(conn)
}

fn is_of_client(peer: &sockets::Peer) -> bool {
    match peer {
        sockets::Peer::Internet => true,
        sockets::Peer::File(path) => path.contains(".s.PGSQL."),
    }
}

pub(super) fn notify(conn: &mut PgConnection, channel: &str, payload: &str) -> QueryResult<()> {
    let told = sql::<Text>("pg_notify(").bind::<Text, _>(channel).sql(", ").bind::<Text, _>(payload);
    diesel::select(told.sql(")::text")).execute(conn).map(drop)
}

pub(super) fn prefer_lookups(conn: &mut PgConnection) -> QueryResult<()> {
    conn.batch_execute("SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off")
}

/// Waiters share the lock, so getting it exclusively shows that there are none. Testing the lock writes nothing.
pub(super) fn notify_finished(conn: &mut PgConnection) -> QueryResult<bool> {
    let alone = sql::<Bool>("CASE WHEN pg_try_advisory_xact_lock(").bind::<BigInt, _>(WAITER_LOCK);
    let told = alone.sql(") THEN FALSE ELSE pg_notify(").bind::<Text, _>(END_CHANNEL);
    diesel::select(told.sql(", '')::text IS NOT NULL END")).get_result(conn)
}

/// Ends that are being recorded hold the lock for a moment. While another session holds it for longer, `notify_finished` does not
/// get it and always notifies. A waiter that did not get it polls when that session has released it.
pub(super) fn listen_for_ends(conn: &mut PgConnection) -> QueryResult<()> {
    let _ =
        conn.batch_execute(&format!("SET LOCAL lock_timeout = '1s'; SELECT pg_advisory_lock_shared({WAITER_LOCK})"));
    conn.batch_execute(&format!("LISTEN {END_CHANNEL}"))
}

pub(super) fn ignore_ends(conn: &mut PgConnection) -> QueryResult<()> {
    conn.batch_execute(&format!("UNLISTEN {END_CHANNEL}; SELECT pg_advisory_unlock_shared({WAITER_LOCK})"))
}

pub(super) fn was_notified(conn: &mut PgConnection) -> QueryResult<bool> {
    let told: Vec<_> = conn.notifications_iter().collect::<QueryResult<_>>()?;
    Ok(!told.is_empty())
}

pub(super) fn has_migrations_table(conn: &mut PgConnection) -> QueryResult<bool> {
    diesel::select(sql::<Bool>("to_regclass('__diesel_schema_migrations') IS NOT NULL")).get_result(conn)
}

pub(super) fn with_migration_lock<T>(
    conn: &mut AnyConnection,
    url: &DatabaseUrl,
    work: impl FnOnce(&mut AnyConnection) -> StoreResult<T>,
) -> StoreResult<T> {
    if url.pooler().pooler().shares_sessions() {
        // The surrounding transaction holds it until its end.
        let lock = sql::<Text>("pg_advisory_xact_lock(").bind::<BigInt, _>(MIGRATION_LOCK).sql(")::text");
        diesel::select(lock).execute(conn)?;
        return work(conn);
    }
    diesel::select(sql::<Text>("pg_advisory_lock(").bind::<BigInt, _>(MIGRATION_LOCK).sql(")::text")).execute(conn)?;
    let result = work(conn);
    // The server releases the lock with the connection at the latest.
    let _ = diesel::select(sql::<Text>("pg_advisory_unlock(").bind::<BigInt, _>(MIGRATION_LOCK).sql(")::text"))
        .execute(conn);
    result
}

pub(super) fn lock_runs(conn: &mut PgConnection) -> QueryResult<()> {
    // Excludes itself and every writer, but no reader (ACCESS EXCLUSIVE, the default, would block `status` too).
    // If a host disappears in the middle of a claim, which takes milliseconds, the lock is free after ten seconds.
    conn.batch_execute(
        r#"SET LOCAL idle_in_transaction_session_timeout = '10s'; LOCK TABLE "TaskQueueRuns" IN SHARE ROW EXCLUSIVE MODE"#,
    )
}

pub(super) fn share_runs(conn: &mut PgConnection) -> QueryResult<()> {
    conn.batch_execute(
        r#"SET LOCAL idle_in_transaction_session_timeout = '10s'; LOCK TABLE "TaskQueueRuns" IN ROW EXCLUSIVE MODE"#,
    )
}

/// A claim of this many runs is large.
const LARGE_CLAIM: usize = 500;

const TAKE_LANE: &str = r#"
    WITH free AS MATERIALIZED (
        SELECT l."Name" FROM "TaskQueueLocks" AS l WHERE l."Name" LIKE ? ORDER BY l."Name" DESC LIMIT 1 FOR UPDATE SKIP LOCKED
    )
    SELECT EXISTS (SELECT 1 FROM free) OR NOT EXISTS (SELECT 1 FROM "TaskQueueLocks" AS l WHERE l."Name" LIKE ?) AS found"#;

/// Allows four concurrent claims, each with one of the rows `claim-1` to `claim-4`. More gain nothing when they share rows, because
/// each scans the rows that the others have locked. For this reason, large claims use only the first row, which small ones take
/// last. Claims do not wait for a row. The snapshot of a waiting statement would preserve every row and index entry that dies
/// meanwhile, and all claims would have to scan those. Not advisory locks: every user of a database may take those. If an
/// administrator has deleted the rows, nothing limits the claims.
pub(super) fn take_lane(conn: &mut PgConnection, runs: usize) -> QueryResult<bool> {
    let lanes = if runs < LARGE_CLAIM { "claim-%" } else { "claim-1" };
    let row: FoundRow = prepared(TAKE_LANE).bind::<Text, _>(lanes).bind::<Text, _>(lanes).get_result(conn)?;
    Ok(row.found)
}

pub(in super::super) fn insert_tasks(conn: &mut PgConnection, rows: &[NewTaskRow]) -> QueryResult<Vec<i64>> {
    if rows.len() < WORTH_A_COPY {
        return rows.iter().map(|row| InsertOne::new(row, None).get_result(conn)).collect();
    }
    copy_tasks(conn, rows)
}

pub(in super::super) fn lock_prerequisites(conn: &mut PgConnection, ids: &[i64]) -> QueryResult<Vec<PrerequisiteRow>> {
    task_queue::table
        .filter(task_queue::id.eq_any(ids))
        .order(task_queue::id)
        .select(PrerequisiteRow::as_select())
        // Shared: transactions that use the same prerequisite need not wait for each other, but a transaction that ends it must
        // wait.
        .for_share()
        .load(conn)
}

pub(in super::super) fn insert_dependencies(conn: &mut PgConnection, rows: &[DependencyRow]) -> QueryResult<()> {
    for chunk in rows.chunks(ROWS_PER_STATEMENT) {
        diesel::sql_query(
            r#"INSERT INTO "TaskQueueDependencies" ("TaskId", "DependsOnId", "IsSatisfied", "NeedsSuccess")
               SELECT * FROM unnest($1, $2, $3, $4)"#,
        )
        .bind::<Array<BigInt>, _>(chunk.iter().map(|row| row.task_id).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(chunk.iter().map(|row| row.depends_on_id).collect::<Vec<_>>())
        .bind::<Array<Bool>, _>(chunk.iter().map(|row| row.is_satisfied).collect::<Vec<_>>())
        .bind::<Array<Bool>, _>(chunk.iter().map(|row| row.needs_success).collect::<Vec<_>>())
        .execute(conn)?;
    }
    Ok(())
}

/// Differs: `lastval()` could be that of a trigger that has inserted into another table.
pub(super) fn last_inserted_id(conn: &mut PgConnection, table: &str) -> QueryResult<i64> {
    let sequence = format!("pg_get_serial_sequence('\"{table}\"', 'Id')");
    diesel::select(sql::<BigInt>(&format!("currval({sequence})"))).get_result(conn)
}

pub(super) fn go_on_after_ids(conn: &mut PgConnection) -> QueryResult<()> {
    for table in ["TaskQueue", "TaskQueueRuns"] {
        let sequence = format!("pg_get_serial_sequence('\"{table}\"', 'Id')");
        // Never backwards: an id that was used is not used again.
        diesel::sql_query(format!(
            "SELECT setval({sequence}, last.id) FROM (
                 SELECT GREATEST(MAX(\"Id\"), pg_sequence_last_value({sequence}::regclass)) AS id FROM \"{table}\") AS last
             WHERE last.id IS NOT NULL"
        ))
        .execute(conn)?;
    }
    Ok(())
}

pub(super) fn find_due(conn: &mut PgConnection, from: DueFrom) -> QueryResult<Option<(Option<SqlMoment>, i64)>> {
    task_queue::table
        .filter(
            sql::<Bool>(r#"("DueOn", "Id") >= ("#)
                .bind::<Timestamp, _>(from.due_on)
                .sql("::timestamptz, ")
                .bind::<BigInt, _>(from.task_id)
                .sql(")"),
        )
        .filter(sql::<Bool>(r#""DueOn" <= (SELECT clock_timestamp())"#))
        .filter(processed_run().is_null())
        .order((task_queue::due_on, task_queue::id))
        .select((task_queue::due_on, task_queue::id))
        .first(conn)
        .optional()
}

pub(super) fn create_due_runs(conn: &mut PgConnection, from: DueFrom, limit: i64) -> QueryResult<usize> {
    // Every row is found through an index. With its own estimates, which are stale just after a batch was queued, the planner
    // would read both tables completely for each part of a long backlog.
    conn.batch_execute(
        "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_seqscan = off;",
    )?;
    let due = lock_due(conn, from, limit)?;
    // The UNION also repairs tasks whose open run is not recorded in their row, which only manual changes of the tables can
    // cause.
    diesel::sql_query(
        r#"WITH due AS MATERIALIZED (
               SELECT t."Id", t."TaskClass", t."Priority", t."Attempts", t."LimitKey", t."Tag", t."DueOn",
                      (SELECT r."Id" FROM "TaskQueueRuns" AS r WHERE r."OpenTaskId" = t."Id") AS "OpenRunId"
               FROM "TaskQueue" AS t
               WHERE t."Id" = ANY ($1) AND t."DueOn" IS NOT NULL
                 AND (SELECT r."Id" FROM "TaskQueueRuns" AS r
                      WHERE r."OpenTaskId" = t."Id" AND r."Status" = 'processing' LIMIT 1) IS NULL
           ), created AS (
               INSERT INTO "TaskQueueRuns" ("TaskQueueId", "TaskClass", "Priority", "Attempt", "LimitKey", "Tag")
               SELECT d."Id", d."TaskClass", d."Priority", d."Attempts" + 1, d."LimitKey", d."Tag"
               FROM due AS d WHERE d."OpenRunId" IS NULL
               ORDER BY d."DueOn", d."Id"
               ON CONFLICT DO NOTHING
               RETURNING "Id", "TaskQueueId"
           ), opened AS (
               SELECT c."Id", c."TaskQueueId" FROM created AS c
               UNION ALL
               SELECT d."OpenRunId", d."Id" FROM due AS d WHERE d."OpenRunId" IS NOT NULL
           )
           UPDATE "TaskQueue" AS t
           SET "CurrentRunId" = o."Id", "UpdatedOn" = clock_timestamp()
           FROM opened AS o WHERE t."Id" = o."TaskQueueId""#,
    )
    .bind::<Array<BigInt>, _>(due)
    .execute(conn)
}

/// Locks the first due tasks at or after a position. A start changes no row of a task: only a later statement can tell for
/// certain which of them were started.
fn lock_due(conn: &mut PgConnection, from: DueFrom, limit: i64) -> QueryResult<Vec<i64>> {
    // The clock is in a subquery because it is volatile: compared directly, it could not bound the index scan.
    let rows: Vec<IdRow> = diesel::sql_query(
        r#"SELECT t."Id" AS id FROM "TaskQueue" AS t
           WHERE (t."DueOn", t."Id") >= ($1::timestamptz, $2) AND t."DueOn" <= (SELECT clock_timestamp())
             AND (SELECT r."Id" FROM "TaskQueueRuns" AS r
                  WHERE r."OpenTaskId" = t."Id" AND r."Status" = 'processing' LIMIT 1) IS NULL
           ORDER BY t."DueOn", t."Id" LIMIT $3
           FOR UPDATE OF t"#,
    )
    .bind::<Timestamp, _>(from.due_on)
    .bind::<BigInt, _>(from.task_id)
    .bind::<BigInt, _>(limit)
    .load(conn)?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

pub(super) fn leave_receipt(conn: &mut PgConnection, token: &str) -> QueryResult<bool> {
    let row = task_queue_receipts::token.eq(token);
    Ok(diesel::insert_into(task_queue_receipts::table).values(row).on_conflict_do_nothing().execute(conn)? == 1)
}

pub(super) fn classify(_text: &str) -> Repeat {
    // Deadlocks (40P01), lock timeouts (55P03) and similar errors arrive as unknown, without SQLSTATE, in the language of the
    // server: they are repeated a few times, then reported.
    Repeat::FewTimes
}

/// 53100 arrives without its code, but quotes the message of the system, in the language of the server.
pub(super) fn is_without_room(text: &str) -> bool {
    text.contains("No space left on device") || text.contains("Disk quota exceeded")
}

pub(super) fn server_up_secs(conn: &mut PgConnection) -> QueryResult<Option<i64>> {
    let secs = "CAST(EXTRACT(epoch FROM clock_timestamp() - pg_postmaster_start_time()) AS bigint)";
    diesel::select(sql::<Nullable<BigInt>>(secs)).get_result(conn)
}

pub(super) fn server_version(conn: &mut PgConnection) -> QueryResult<String> {
    let version: String = diesel::select(sql::<Text>("current_setting('server_version')")).get_result(conn)?;
    Ok(format!("PostgreSQL {version}"))
}
