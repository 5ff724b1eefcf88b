//! Inserts tasks.

pub(crate) mod callers;
pub(crate) mod dependencies;
pub(crate) mod new_task;
pub(crate) mod queue_one;
pub(crate) mod queueing;
pub(crate) mod transfer;
pub(crate) mod unique;
