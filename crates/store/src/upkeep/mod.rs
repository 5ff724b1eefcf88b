//! Removes rows past their retention period.

pub(crate) mod cleanup;
pub(crate) mod prunable;
pub(crate) mod prune;
