//! Events of tasks and runs, and the audit of transitions that writes them.

pub(crate) mod audit;
pub(crate) mod events;
