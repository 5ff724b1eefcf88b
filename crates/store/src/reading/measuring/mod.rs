//! What is counted and timed.

pub(crate) mod metrics;
pub(crate) mod queues;
pub(crate) mod run_times;
pub(crate) mod starts;
pub(crate) mod waiting;
