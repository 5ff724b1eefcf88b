//! Numbers for monitoring: metrics, checks, what a worker has counted.

pub mod check;
pub(crate) mod counted;
pub mod metrics;
pub mod metrics_text;
pub(crate) mod tally;
