//! SQLite: the file's journal, and its indexes.

use std::path::Path;

use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error, QueryResult};
use diesel::sql_types::Text;

use super::super::sqlite::{OLDEST_SAFE_FOR_WAL, classify, library_version};
use super::{Name, NamedValue, Symptom, missing_indexes, wrong_settings};
use crate::backend::notices::{holder_words, or_another};
use crate::error::Repeat;

const MIGRATION: &str = include_str!("../../../../../migrations/sqlite/2026-11-29-040000_create_task_queue/up.sql");

pub(super) fn symptoms(conn: &mut SqliteConnection, file: Option<&Path>) -> QueryResult<Vec<Symptom>> {
    let settings: Vec<NamedValue> =
        diesel::sql_query("SELECT 'journal_mode' AS name, journal_mode AS value FROM pragma_journal_mode")
            .load(conn)?;
    // An older library, possible only in a build without `bundled`, is kept from WAL on purpose.
    let wanted: &[(&str, &str)] =
        if library_version(conn)? >= OLDEST_SAFE_FOR_WAL { &[("journal_mode", "wal")] } else { &[] };
    let mut found = wrong_settings(settings, wanted);
    let indexes: Vec<Name> =
        diesel::sql_query("SELECT name FROM sqlite_schema WHERE type = 'index' AND name IS NOT NULL").load(conn)?;
    found.extend(missing_indexes(MIGRATION, &indexes));
    found.extend(file.and_then(|file| find_lock(conn, file)));
    Ok(found)
}

/// Tries to start a write transaction, for as long as a statement waits for a lock; writes nothing.
fn find_lock(conn: &mut SqliteConnection, file: &Path) -> Option<Symptom> {
    let error = conn.batch_execute("BEGIN IMMEDIATE; ROLLBACK;").err()?;
    let is_locked = classify(&error.to_string()) == Repeat::Yes;
    is_locked.then(|| Symptom::Locked { path: file.to_owned(), who: or_another(holder_words(file)) })
}

/// Copies the store, without free pages, into a file that is empty.
pub(super) fn copy_into(conn: &mut SqliteConnection, file: &Path) -> QueryResult<()> {
    let file = file.to_string_lossy().into_owned();
    diesel::sql_query("VACUUM INTO ?").bind::<Text, _>(file).execute(conn).map(drop)
}

/// Checks all pages and indexes.
pub(super) fn unreadable(conn: &mut SqliteConnection) -> QueryResult<Vec<String>> {
    let found: QueryResult<Vec<Name>> =
        diesel::sql_query("SELECT integrity_check AS name FROM pragma_integrity_check WHERE integrity_check <> 'ok'")
            .load(conn);
    match found {
        // Some damage ends the check itself.
        Err(Error::DatabaseError(DatabaseErrorKind::Unknown, why)) if why.message().contains("malformed") => {
            Ok(vec![why.message().to_owned()])
        }
        found => Ok(found?.into_iter().map(|Name { name }| name).collect()),
    }
}
