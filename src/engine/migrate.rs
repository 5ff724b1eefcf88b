//! `migrate`: the tables of a server, on demand.

use super::EngineResult;
pub use crate::store::MigrationBegun;
use crate::store::{DatabaseUrl, Migration, MigrationReport, Store};

/// What is applied and what is pending; changes nothing.
///
/// # Errors
/// The database's.
pub fn list(url: &DatabaseUrl) -> EngineResult<Vec<Migration>> {
    Ok(Store::connect(url)?.migrations()?)
}

/// Applies what is pending; `begun` hears of each migration before it is applied.
///
/// # Errors
/// The database's.
pub fn run(url: &DatabaseUrl, begun: &mut dyn FnMut(&MigrationBegun)) -> EngineResult<MigrationReport> {
    Ok(Store::connect(url)?.migrate_and_tell(begun)?)
}
