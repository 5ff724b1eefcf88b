//! Removes rows past their retention period; writes events and notices.

pub(crate) mod audit;
pub(crate) mod cleanup;
pub(crate) mod events;
pub(crate) mod notices;
pub(crate) mod outputs;
pub(crate) mod prunable;
pub(crate) mod prune;
