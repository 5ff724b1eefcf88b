//! One connection type for the three clients. Diesel derives the backend `MultiBackend` from it.

use diesel::mysql::MysqlConnection;
use diesel::pg::PgConnection;
use diesel::sqlite::SqliteConnection;

/// A connection to any of the engines.
#[derive(diesel::MultiConnection)]
pub(crate) enum AnyConnection {
    /// SQLite
    Sqlite(SqliteConnection),
    /// PostgreSQL
    Postgres(PgConnection),
    /// MySQL or MariaDB
    Mysql(MysqlConnection),
}
