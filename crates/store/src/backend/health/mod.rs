//! Reads from an engine what an operator should know about its state. Read-only; values that may not be read are skipped.

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::path::{Path, PathBuf};

use diesel::prelude::*;
use diesel::result::QueryResult;
use diesel::sql_types::{BigInt, Text};
use serde::Serialize;

use crate::base::connection::{AnyConnection, by_engine};
use crate::{StoreError, StoreResult};

/// A smaller number of dead rows is insignificant.
const MANY_DEAD_ROWS: i64 = 50_000;

/// A problem or fact of the server or the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "symptom", rename_all = "snake_case")]
pub enum Symptom {
    /// A setting with which committed data can be lost, or tables grow.
    Setting {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
        /// What it should be.
        wanted: String,
    },
    /// An index of the migrations is missing or unusable.
    MissingIndex {
        /// Its name.
        name: String,
        /// The statement that creates it.
        statement: String,
    },
    /// A transaction has been open for a long time.
    LongTransaction {
        /// How long, in seconds.
        secs: i64,
        /// The session, and the statement that ends it.
        who: String,
    },
    /// More rows of a table are dead than live, and VACUUM has not removed them.
    DeadRows {
        /// The table.
        table: String,
        /// Dead rows.
        dead: i64,
        /// Live rows.
        live: i64,
    },
    /// A SQLite store has been locked for a second, so that it cannot be written.
    Locked {
        /// Its file.
        path: PathBuf,
        /// The process that has locked it.
        who: String,
    },
    /// A server has no space for another row.
    Full {
        /// The message of the server.
        error: String,
    },
    /// The server is a node of a Galera cluster.
    Cluster {
        /// The number of nodes it sees, including itself.
        nodes: i64,
    },
}

/// Returns the symptoms of this connection's server or file; a transaction is long if it has been open for `long_secs` seconds.
/// `file` is the file of a SQLite store that can be locked.
pub(in super::super) fn symptoms(
    conn: &mut AnyConnection,
    file: Option<&Path>,
    long_secs: i64,
) -> QueryResult<Vec<Symptom>> {
    by_engine!(match conn {
        // Differs: long readers show as a growing log.
        AnyConnection::Sqlite(conn) => sqlite::symptoms(conn, file),
        AnyConnection::Postgres(conn) => postgres::symptoms(conn, long_secs),
        AnyConnection::Mysql(conn) => mysql::symptoms(conn, long_secs),
    })
}

/// Returns the number of nodes of the server's Galera cluster; `None` if it is not in a cluster.
pub(in super::super) fn cluster_nodes(conn: &mut AnyConnection) -> QueryResult<Option<i64>> {
    by_engine!(match conn {
        AnyConnection::Sqlite(_) | AnyConnection::Postgres(_) => Ok(None),
        AnyConnection::Mysql(conn) => mysql::cluster_nodes(conn),
    })
}

/// Copies a SQLite store into an empty file.
pub(in super::super) fn copy_into(conn: &mut AnyConnection, file: &Path) -> StoreResult<()> {
    by_engine!(match conn {
        AnyConnection::Sqlite(conn) => Ok(sqlite::copy_into(conn, file)?),
        // Differs: a server is copied by its own tools.
        AnyConnection::Postgres(_) | AnyConnection::Mysql(_) =>
            Err(StoreError::BadAddress("only a SQLite store is copied".to_owned())),
    })
}

/// Returns what the engine cannot read, in its own words.
pub(in super::super) fn unreadable(conn: &mut AnyConnection) -> QueryResult<Vec<String>> {
    by_engine!(match conn {
        AnyConnection::Sqlite(conn) => sqlite::unreadable(conn),
        // Differs: a server compares the checksums of its pages whenever it reads them.
        AnyConnection::Postgres(_) | AnyConnection::Mysql(_) => Ok(Vec::new()),
    })
}

/// A name and a value.
#[derive(QueryableByName)]
struct NamedValue {
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Text)]
    value: String,
}

/// A name.
#[derive(QueryableByName)]
struct Name {
    #[diesel(sql_type = Text)]
    name: String,
}

/// A session, and for how long its transaction has been open.
#[derive(QueryableByName)]
struct OpenTransaction {
    #[diesel(sql_type = Text)]
    who: String,
    #[diesel(sql_type = BigInt)]
    secs: i64,
}

/// Returns the settings that do not have the wanted value.
fn wrong_settings(found: Vec<NamedValue>, wanted: &[(&str, &str)]) -> Vec<Symptom> {
    let wrong = found.into_iter().filter_map(|NamedValue { name, value }| {
        let (_, good) = wanted.iter().find(|(wanted, _)| *wanted == name)?;
        let is_good = value.eq_ignore_ascii_case(good);
        (!is_good).then(|| Symptom::Setting { name, value, wanted: (*good).to_owned() })
    });
    wrong.collect()
}

/// Returns the indexes that the text of a migration creates and that are not among those found.
fn missing_indexes(migration: &str, found: &[Name]) -> Vec<Symptom> {
    let is_there = |name: &str| found.iter().any(|found| found.name == name);
    let missing = made_indexes(migration).into_iter().filter(|(name, _)| !is_there(name));
    missing.map(|(name, statement)| Symptom::MissingIndex { name, statement }).collect()
}

/// Returns the name and the statement of each `CREATE INDEX` of a migration.
fn made_indexes(migration: &str) -> Vec<(String, String)> {
    let lines = migration.lines().map(str::trim).filter(|line| !line.starts_with("--") && !line.is_empty());
    let text = lines.collect::<Vec<_>>().join(" ");
    let statements = text.split(';').map(|statement| statement.trim().to_owned());
    let is_index =
        |statement: &String| statement.starts_with("CREATE INDEX") || statement.starts_with("CREATE UNIQUE INDEX");
    let named = |statement: String| {
        let name = statement.split('"').nth(1)?.to_owned();
        Some((name, format!("{statement};")))
    };
    statements.filter(is_index).filter_map(named).collect()
}

fn long_transactions(open: Vec<OpenTransaction>, long_secs: i64) -> Vec<Symptom> {
    let is_long = |open: &OpenTransaction| open.secs >= long_secs;
    open.into_iter()
        .filter(is_long)
        .map(|OpenTransaction { who, secs }| Symptom::LongTransaction { secs, who })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_indexes_of_a_migration_are_found_in_its_text() {
        let text = "-- why; because\nCREATE TABLE \"T\" (\n \"A\" text\n);\n\nCREATE INDEX \"One\"\n    ON \"T\" (\"A\");\nCREATE UNIQUE INDEX \"Two\" ON \"T\" (\"A\") WHERE \"A\" > 1;\n";
        let made = made_indexes(text);
        assert_eq!(made[0], ("One".to_owned(), "CREATE INDEX \"One\" ON \"T\" (\"A\");".to_owned()));
        assert_eq!((made.len(), made[1].0.as_str()), (2, "Two"));
        let found = [Name { name: "Two".to_owned() }];
        let missing = missing_indexes(text, &found);
        assert!(matches!(&missing[..], [Symptom::MissingIndex { name, .. }] if name == "One"), "{missing:?}");
    }

    #[test]
    fn a_setting_is_wrong_that_is_not_what_is_wanted() {
        let named = |name: &str, value: &str| NamedValue { name: name.to_owned(), value: value.to_owned() };
        let found = vec![named("fsync", "on"), named("full_page_writes", "off"), named("other", "off")];
        let wrong = wrong_settings(found, &[("fsync", "ON"), ("full_page_writes", "on")]);
        assert_eq!(wrong.len(), 1);
        assert!(
            matches!(&wrong[0], Symptom::Setting { name, value, .. } if name == "full_page_writes" && value == "off")
        );
    }
}
