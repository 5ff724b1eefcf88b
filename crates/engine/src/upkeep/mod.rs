//! Background jobs: create runs, rescue, prune, notify.

pub mod create_runs;
pub(crate) mod event_gaps;
pub mod prune;
pub mod rescue;
