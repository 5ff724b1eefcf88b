//! MariaDB's `innodb_snapshot_isolation`, on by default from 11.6. It concerns REPEATABLE READ transactions that have already
//! read. A statement that locks a row changed by another transaction since then fails with error 1020, and the server rolls the
//! whole transaction back. Sessions of this program are READ COMMITTED, so this concerns only callers' sessions.

use diesel::connection::SimpleConnection as _;
use diesel::mysql::MysqlConnection;
use diesel::result::QueryResult;

use super::shown;
use crate::error::StoreResult;

/// MySQL and older versions of MariaDB do not have this setting.
fn is_isolated(conn: &mut MysqlConnection) -> QueryResult<bool> {
    Ok(shown(conn, "SESSION VARIABLES LIKE 'innodb_snapshot_isolation'")?.is_some_and(|value| value == "ON"))
}

/// Runs statements that lock rows in a caller's transaction: they read the newest version of a row, as on every other server.
/// Restores the session afterwards.
pub(crate) fn reading_latest<T>(
    conn: &mut MysqlConnection,
    work: impl FnOnce(&mut MysqlConnection) -> StoreResult<T>,
) -> StoreResult<T> {
    if !is_isolated(conn)? {
        return work(conn);
    }
    conn.batch_execute("SET SESSION innodb_snapshot_isolation = OFF")?;
    let result = work(conn);
    let restored = conn.batch_execute("SET SESSION innodb_snapshot_isolation = ON");
    let value = result?;
    restored?;
    Ok(value)
}
