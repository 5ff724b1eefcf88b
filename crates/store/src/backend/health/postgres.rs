//! PostgreSQL: its settings, indexes, transactions and dead rows.

use diesel::prelude::*;
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Text};

use super::{
    MANY_DEAD_ROWS, Name, NamedValue, OpenTransaction, Symptom, long_transactions, missing_indexes, wrong_settings,
};

const MIGRATION: &str = include_str!("../../../../../migrations/postgres/2026-11-29-040000_create_task_queue/up.sql");

#[derive(QueryableByName)]
struct Rows {
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = BigInt)]
    dead: i64,
    #[diesel(sql_type = BigInt)]
    live: i64,
}

pub(super) fn symptoms(conn: &mut PgConnection, long_secs: i64) -> QueryResult<Vec<Symptom>> {
    let wanted = [("fsync", "on"), ("full_page_writes", "on"), ("synchronous_commit", "on"), ("autovacuum", "on")];
    let settings: Vec<NamedValue> = diesel::sql_query(
        // `local`, `remote_write` and `remote_apply` differ only for standbys; with all of them, a commit is on this server's
        // disk.
        "SELECT name::text AS name,
                CASE WHEN name = 'synchronous_commit' AND setting <> 'off' THEN 'on' ELSE setting END::text AS value
         FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum') ORDER BY name",
    )
    .load(conn)?;
    let mut found = wrong_settings(settings, &wanted);
    let indexes: Vec<Name> = diesel::sql_query(
        "SELECT c.relname::text AS name FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
         JOIN pg_class AS t ON t.oid = i.indrelid
         WHERE i.indisvalid AND t.relname LIKE 'TaskQueue%' AND pg_table_is_visible(t.oid)",
    )
    .load(conn)?;
    found.extend(missing_indexes(MIGRATION, &indexes));
    let open: Vec<OpenTransaction> = diesel::sql_query(
        "SELECT format('%s from %s, %s (SELECT pg_terminate_backend(%s))', usename,
                       coalesce(host(client_addr), 'this host'), state, pid) AS who,
                extract(epoch FROM clock_timestamp() - xact_start)::bigint AS secs
         FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
               AND backend_type = 'client backend'
         UNION ALL
         SELECT format('%s, prepared as %L (ROLLBACK PREPARED %L)', owner, gid, gid),
                extract(epoch FROM clock_timestamp() - prepared)::bigint
         FROM pg_prepared_xacts WHERE database = current_database()",
    )
    .load(conn)?;
    found.extend(long_transactions(open, long_secs));
    let rows: Vec<Rows> = diesel::sql_query(
        "SELECT relname::text AS name, n_dead_tup AS dead, n_live_tup AS live
         FROM pg_stat_user_tables WHERE relname LIKE 'TaskQueue%' AND pg_table_is_visible(relid) ORDER BY relname",
    )
    .load(conn)?;
    let is_bad = |rows: &Rows| rows.dead >= MANY_DEAD_ROWS && rows.dead > rows.live;
    let dead = rows.into_iter().filter(is_bad);
    found.extend(dead.map(|Rows { name, dead, live }| Symptom::DeadRows { table: name, dead, live }));
    Ok(found)
}
