//! Background jobs: create runs, rescue, prune, notify; backups and checks of the store.

pub mod backup;
pub mod create_runs;
pub(crate) mod event_gaps;
pub mod migrate;
pub mod prune;
pub mod rescue;
