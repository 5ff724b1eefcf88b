//! `migrate`: the tables of a server, on demand.

use super::EngineResult;
use crate::store::{DatabaseUrl, Migration, MigrationReport, Store};

/// What is applied and what is pending; changes nothing.
///
/// # Errors
/// The database's.
pub fn list(url: &DatabaseUrl) -> EngineResult<Vec<Migration>> {
    Ok(Store::connect(url)?.migrations()?)
}

/// Applies what is pending.
///
/// # Errors
/// The database's.
pub fn run(url: &DatabaseUrl) -> EngineResult<MigrationReport> {
    Ok(Store::connect(url)?.migrate()?)
}
