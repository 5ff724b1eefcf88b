//! SQLite: the file's journal, and its indexes.

use diesel::prelude::*;
use diesel::result::QueryResult;

use super::super::sqlite::{OLDEST_SAFE_FOR_WAL, library_version};
use super::{Name, Named, Symptom, missing_indexes, wrong_settings};

const MIGRATION: &str = include_str!("../../../../migrations/sqlite/2026-11-21-000000_create_task_queue/up.sql");

pub(super) fn symptoms(conn: &mut SqliteConnection) -> QueryResult<Vec<Symptom>> {
    let settings: Vec<Named> =
        diesel::sql_query("SELECT 'journal_mode' AS name, journal_mode AS value FROM pragma_journal_mode")
            .load(conn)?;
    // An older one, which only a build without `bundled` has, is kept from it on purpose.
    let wanted: &[(&str, &str)] =
        if library_version() >= OLDEST_SAFE_FOR_WAL { &[("journal_mode", "wal")] } else { &[] };
    let mut found = wrong_settings(settings, wanted);
    let indexes: Vec<Name> =
        diesel::sql_query("SELECT name FROM sqlite_schema WHERE type = 'index' AND name IS NOT NULL").load(conn)?;
    found.extend(missing_indexes(MIGRATION, &indexes));
    Ok(found)
}
