//! `db migrate`: creates or updates the tables of a server.

use crate::error::EngineResult;
pub use taskqueue_store::MigrationBegun;
use taskqueue_store::{ConnectWait, DatabaseUrl, Migration, MigrationReport, Store, all_pending};

/// Returns the applied and the pending migrations; changes nothing.
///
/// # Errors
/// Returns an error if the database fails.
pub fn list(url: &DatabaseUrl, wait: &ConnectWait) -> EngineResult<Vec<Migration>> {
    Ok(Store::list_migrations(url, wait)?)
}

/// Like [`list`], for a store whose directory does not exist yet.
///
/// # Errors
/// Returns an error if the embedded migrations cannot be read.
pub fn list_for_new(url: &DatabaseUrl) -> EngineResult<Vec<Migration>> {
    Ok(all_pending(url.engine())?)
}

/// Returns the number of nodes in the server's Galera cluster; `None` if it is in none.
///
/// # Errors
/// Returns an error if the database fails.
pub fn cluster_nodes(url: &DatabaseUrl) -> EngineResult<Option<i64>> {
    Ok(Store::connect(url)?.cluster_nodes()?)
}

/// Applies the pending migrations. `begun` is called before each one.
///
/// # Errors
/// Returns an error if the database fails.
pub fn run(
    url: &DatabaseUrl,
    wait: &ConnectWait,
    begun: &mut dyn FnMut(&MigrationBegun),
) -> EngineResult<MigrationReport> {
    Ok(Store::connect_waiting(url, wait)?.migrate_and_tell(begun)?)
}
