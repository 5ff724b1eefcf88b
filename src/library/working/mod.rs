//! Processes runs inside a program.

pub(crate) mod listener;
pub(crate) mod worker;
pub(crate) mod worker_event;
