//! Migrations: applied and pending ones, and the rejection of a schema that this program does not know.

use std::time::Duration;

use diesel::migration::{Migration as _, MigrationSource};
use diesel::prelude::*;
use diesel::result::{Error as DieselError, QueryResult};
use diesel::sql_types::{Nullable, Text};
use diesel_migrations::MigrationHarness as _;
use serde::Serialize;

use crate::address::url::{DatabaseUrl, Engine};
use crate::backend;
use crate::base::cells::ShownText;
use crate::base::connection::AnyConnection;
use crate::base::connection::MultiBackend;
use crate::rules::settings::SettingRows;
use crate::{ConnectWait, Store, StoreError, StoreResult};

/// A migration and whether it was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Migration {
    /// Its name: date and purpose.
    pub name: String,
    /// Whether it is applied in the database.
    pub applied: bool,
}

/// The result of `migrate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MigrationReport {
    /// All migrations of this program, oldest first, in their state before.
    pub migrations: Vec<Migration>,
    /// The names of those that were applied now.
    pub newly_applied: Vec<String>,
}

/// A migration that is being applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationBegun {
    /// Its name.
    pub name: String,
    /// How many were applied before it in this call.
    pub done: usize,
    /// How many were pending.
    pub pending: usize,
}

diesel::table! {
    __diesel_schema_migrations (version) {
        version -> Text,
    }
}

/// Returns all migrations of this program, as pending, for a database that does not exist yet.
///
/// # Errors
/// [`StoreError::Migration`]
pub fn all_pending(engine: Engine) -> StoreResult<Vec<Migration>> {
    Ok(known_migrations(engine)?.into_iter().map(|(_, name)| Migration { name, applied: false }).collect())
}

impl Store {
    /// Returns the applied and the pending migrations at this address; creates and changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`], [`StoreError::BadAddress`], [`StoreError::ReadOnly`], [`StoreError::NewerSchema`].
    pub fn list_migrations(url: &DatabaseUrl, wait: &ConnectWait) -> StoreResult<Vec<Migration>> {
        match wait.retry(|| backend::connect_if_there(url))? {
            Some(conn) => Self::with_connection(conn, url, None).migrations(),
            None => all_pending(url.engine()),
        }
    }

    /// Returns the applied and the pending migrations; changes nothing.
    ///
    /// # Errors
    /// [`StoreError::NewerSchema`], [`StoreError::OlderSchema`].
    pub fn migrations(&mut self) -> StoreResult<Vec<Migration>> {
        let known = known_migrations(self.url().engine())?;
        let applied = applied_versions(self)?;
        let is_unknown = |version: &&String| known.iter().all(|(own, _)| own != *version);
        if let Some(version) = applied.iter().filter(is_unknown).max().cloned() {
            let url = self.url.to_string();
            return Err(match known.first() {
                Some((first, _)) if version < *first => StoreError::OlderSchema { url, version },
                _ => StoreError::NewerSchema { url, version },
            });
        }
        let is_applied = |version: &String| applied.contains(version);
        Ok(known.into_iter().map(|(version, name)| Migration { applied: is_applied(&version), name }).collect())
    }

    /// Applies the pending migrations, while no other process can.
    ///
    /// # Errors
    /// [`StoreError::NewerSchema`], [`StoreError::Migration`], [`StoreError::Busy`].
    pub fn migrate(&mut self) -> StoreResult<MigrationReport> {
        self.migrate_and_tell(&mut |_| {})
    }

    /// Same as [`Store::migrate`]; calls `begun` before each migration.
    ///
    /// # Errors
    /// As for [`Store::migrate`].
    pub fn migrate_and_tell(&mut self, begun: &mut dyn FnMut(&MigrationBegun)) -> StoreResult<MigrationReport> {
        let url = self.url.clone();
        let migrations = self.migrations()?;
        // A user without the right to create tables can still query.
        if migrations.iter().all(|migration| migration.applied) {
            return Ok(MigrationReport { migrations, newly_applied: Vec::new() });
        }
        let patience = url.patience().clone();
        // A migration of large tables may take a long time.
        let allowed = patience.set_limit(Duration::MAX);
        let newly_applied = self.read(|conn| {
            backend::with_migration_lock(conn, &url, |conn| {
                fault_point!("migrate.locked");
                let applied = apply_pending(conn, url.engine(), begun)
                    .map_err(|error| StoreError::Migration(error.to_string()))?;
                fault_point!("migrate.applied");
                Ok(applied)
            })
        });
        patience.set_limit(allowed);
        let newly_applied = newly_applied?;
        fault_point!("migrate.done");
        Ok(MigrationReport { migrations, newly_applied })
    }
}

/// Migrates SQLite automatically, unless the file belongs to another program; on servers, asks for `taskqueue db migrate`.
pub(crate) fn ensure_current(store: &mut Store) -> StoreResult<()> {
    match (count_pending(store)?, store.url.engine()) {
        (0, _) => Ok(()),
        (_, Engine::Sqlite) if store.read(backend::is_foreign)? => {
            Err(StoreError::Foreign { url: store.url.to_string() })
        }
        (_, Engine::Sqlite) => store.migrate().map(drop),
        (pending, _) => Err(StoreError::NotMigrated { url: store.url.to_string(), pending }),
    }
}

/// Creates the tables of a SQLite store in memory, which other processes cannot access.
pub(crate) fn migrate_memory(store: &mut Store) -> StoreResult<()> {
    let applied = |conn: &mut AnyConnection| apply_pending(conn, Engine::Sqlite, &mut |_| {}).map(drop);
    store.read(|conn| applied(conn).map_err(|error| StoreError::Migration(error.to_string())))
}

/// Migrates nothing: pending migrations are an error on every engine.
pub(crate) fn require_current(store: &mut Store) -> StoreResult<()> {
    match count_pending(store)? {
        0 => Ok(()),
        pending => Err(StoreError::NotMigrated { url: store.url.to_string(), pending }),
    }
}

fn count_pending(store: &mut Store) -> StoreResult<usize> {
    Ok(store.migrations()?.iter().filter(|migration| !migration.applied).count())
}

/// Lists the pending migrations again, now that no other process can apply them.
fn apply_pending(
    conn: &mut AnyConnection,
    engine: Engine,
    begun: &mut dyn FnMut(&MigrationBegun),
) -> diesel::migration::Result<Vec<String>> {
    let pending = conn.pending_migrations(backend::migrations(engine)?)?;
    let mut applied = Vec::with_capacity(pending.len());
    for migration in &pending {
        let name = migration.name().to_string();
        begun(&MigrationBegun { name: name.clone(), done: applied.len(), pending: pending.len() });
        conn.run_migration(migration)?;
        applied.push(name);
    }
    Ok(applied)
}

fn known_migrations(engine: Engine) -> StoreResult<Vec<(String, String)>> {
    let source = backend::migrations(engine)?;
    let migrations = MigrationSource::<MultiBackend>::migrations(&source)
        .map_err(|error| StoreError::Migration(error.to_string()))?;
    let mut known: Vec<_> = migrations
        .iter()
        .map(|migration| (migration.name().version().to_string(), migration.name().to_string()))
        .collect();
    known.sort();
    Ok(known)
}

/// Only a database without the table of migrations has none applied; an unreadable table is an error. Whether the table exists is
/// checked only if it could not be read.
fn applied_versions(store: &mut Store) -> StoreResult<Vec<String>> {
    let is_one_transaction = store.pooler().shares_sessions();
    let (settings, versions) = store.read(|conn| {
        // An error would abort the transaction.
        if is_one_transaction {
            return Ok((None, read_versions_if_any(conn)?));
        }
        match read_settings_and_versions(conn) {
            Ok((settings, versions)) => Ok((Some(settings), versions)),
            // Older or newer tables, or none.
            Err(DieselError::DatabaseError(..)) => Ok((None, read_versions_if_any(conn)?)),
            Err(error) => Err(error.into()),
        }
    })?;
    if let Some(settings) = settings {
        store.keep_settings(&settings);
    }
    Ok(versions)
}

fn read_versions_if_any(conn: &mut AnyConnection) -> QueryResult<Vec<String>> {
    if !backend::has_migrations_table(conn)? {
        return Ok(Vec::new());
    }
    __diesel_schema_migrations::table.select(__diesel_schema_migrations::version).load(conn)
}

/// The name and the value of a setting; or no name, and the version of a migration.
#[derive(QueryableByName)]
struct SettingOrVersion {
    #[diesel(sql_type = Nullable<Text>)]
    name: Option<ShownText>,
    #[diesel(sql_type = Text)]
    value: ShownText,
}

/// Reads the settings, too: almost every command needs them, and this saves it a statement.
fn read_settings_and_versions(conn: &mut AnyConnection) -> QueryResult<(SettingRows, Vec<String>)> {
    let statement = r#"SELECT "Name" AS name, "Value" AS value FROM "TaskQueueSettings"
        UNION ALL SELECT NULL, version FROM __diesel_schema_migrations"#;
    let (mut settings, mut versions) = (Vec::new(), Vec::new());
    for SettingOrVersion { name, value } in backend::load_named(conn, statement)? {
        match name {
            Some(name) => settings.push((name.0, value.0)),
            None => versions.push(value.0),
        }
    }
    Ok((settings, versions))
}
