//! Claims runs for your own worker.

pub(crate) mod claim;
pub(crate) mod claimed_run;
