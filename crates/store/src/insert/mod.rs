//! Inserts tasks.

pub(crate) mod callers;
pub(crate) mod queue_one;
pub(crate) mod queueing;
pub(crate) mod transfer;
