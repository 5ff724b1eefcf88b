//! Claims runs for a program of one's own.

pub(crate) mod claim;
pub(crate) mod claimed_run;
