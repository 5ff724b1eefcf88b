//! Background jobs: create runs, rescue, prune, notify.

pub(crate) mod announce;
pub mod create_runs;
pub(crate) mod event_gaps;
pub(crate) mod final_failures;
pub mod prune;
pub mod rescue;
pub(crate) mod silence;
pub mod tick;
