//! MySQL and MariaDB: their settings, indexes and transactions.

use diesel::prelude::*;
use diesel::result::QueryResult;

use super::{Name, NamedValue, OpenTransaction, Symptom, long_transactions, wrong_settings};
use crate::backend::mysql::shown;

const MIGRATION: &str = include_str!("../../../../../migrations/mysql/2026-11-29-040000_create_task_queue/up.sql");

pub(super) fn symptoms(conn: &mut MysqlConnection, long_secs: i64) -> QueryResult<Vec<Symptom>> {
    let wanted = [("innodb_flush_log_at_trx_commit", "1"), ("innodb_doublewrite", "1"), ("sync_binlog", "1")];
    let settings: Vec<NamedValue> = diesel::sql_query(
        // Without a binary log, its setting is irrelevant. For doublewrite, MySQL and MariaDB since 11 use words.
        "SELECT 'innodb_flush_log_at_trx_commit' AS name, CAST(@@GLOBAL.innodb_flush_log_at_trx_commit AS CHAR) AS value
         UNION ALL
         SELECT 'innodb_doublewrite',
                CASE WHEN CAST(@@GLOBAL.innodb_doublewrite AS CHAR) IN ('0', 'OFF') THEN '0' ELSE '1' END
         UNION ALL
         SELECT 'sync_binlog', CASE WHEN @@GLOBAL.log_bin = 0 THEN '1' ELSE CAST(@@GLOBAL.sync_binlog AS CHAR) END",
    )
    .load(conn)?;
    let mut found = wrong_settings(settings, &wanted);
    found.extend(cluster_nodes(conn)?.map(|nodes| Symptom::Cluster { nodes }));
    let indexes: Vec<Name> = diesel::sql_query(
        "SELECT DISTINCT INDEX_NAME AS name FROM information_schema.STATISTICS
         WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE 'TaskQueue%'",
    )
    .load(conn)?;
    found.extend(missing_keys(&indexes));
    // Some users may not read the transactions of the server, whose times are in the zone of its machine.
    let open: QueryResult<Vec<OpenTransaction>> = diesel::sql_query(
        "SELECT CONCAT('thread ', trx_mysql_thread_id, ' (KILL ', trx_mysql_thread_id, ')') AS who,
                CAST(TIMESTAMPDIFF(SECOND, trx_started, CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM')) AS SIGNED) AS secs
         FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id NOT IN (0, CONNECTION_ID())",
    )
    .load(conn);
    found.extend(long_transactions(open.unwrap_or_default(), long_secs));
    Ok(found)
}

/// Uses SHOW, because servers without Galera do not know the names.
pub(super) fn cluster_nodes(conn: &mut MysqlConnection) -> QueryResult<Option<i64>> {
    if shown(conn, "GLOBAL VARIABLES LIKE 'wsrep_on'")?.is_none_or(|value| value != "ON") {
        return Ok(None);
    }
    let size = shown(conn, "GLOBAL STATUS LIKE 'wsrep_cluster_size'")?;
    Ok(Some(size.and_then(|value| value.parse().ok()).unwrap_or(1)))
}

/// Returns the missing keys. In these migrations, the keys of a table are part of the statement that creates it.
fn missing_keys(found: &[Name]) -> Vec<Symptom> {
    let (mut missing, mut table) = (Vec::new(), "");
    for line in MIGRATION.lines().map(|line| line.trim().trim_end_matches(',')) {
        if let Some(rest) = line.strip_prefix("CREATE TABLE IF NOT EXISTS ") {
            table = rest.trim_end_matches(" (");
        }
        let is_key = line.starts_with("KEY `") || line.starts_with("UNIQUE KEY `");
        let Some(name) = line.split('`').nth(1).filter(|_| is_key) else { continue };
        if !found.iter().any(|found| found.name == name) {
            let statement = format!("ALTER TABLE {table} ADD {line};");
            missing.push(Symptom::MissingIndex { name: name.to_owned(), statement });
        }
    }
    missing
}
