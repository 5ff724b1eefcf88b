//! `migrate`: the tables of a server, on demand.

use crate::EngineResult;
pub use taskqueue_store::MigrationBegun;
use taskqueue_store::{ConnectWait, DatabaseUrl, Migration, MigrationReport, Store, all_pending};

/// What is applied and what is pending; makes and changes nothing.
///
/// # Errors
/// The database's.
pub fn list(url: &DatabaseUrl, wait: &ConnectWait) -> EngineResult<Vec<Migration>> {
    Ok(Store::list_migrations(url, wait)?)
}

/// The same of a store whose directory is still to be made.
///
/// # Errors
/// When the migrations in this program cannot be read.
pub fn list_for_new(url: &DatabaseUrl) -> EngineResult<Vec<Migration>> {
    Ok(all_pending(url.engine())?)
}

/// Nodes of the Galera cluster that the server belongs to; `None` where it belongs to none.
///
/// # Errors
/// The database's.
pub fn cluster_nodes(url: &DatabaseUrl) -> EngineResult<Option<i64>> {
    Ok(Store::connect(url)?.cluster_nodes()?)
}

/// Applies what is pending; `begun` hears of each migration before it is applied.
///
/// # Errors
/// The database's.
pub fn run(
    url: &DatabaseUrl,
    wait: &ConnectWait,
    begun: &mut dyn FnMut(&MigrationBegun),
) -> EngineResult<MigrationReport> {
    Ok(Store::connect_waiting(url, wait)?.migrate_and_tell(begun)?)
}
