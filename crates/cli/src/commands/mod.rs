//! The verbs, one file each: parses arguments, calls a use case, prints a report.

pub(crate) mod changing;
pub(crate) mod claiming;
pub(crate) mod inspecting;
pub(crate) mod operating;
pub(crate) mod options;
pub(crate) mod queueing;
pub(crate) mod running;
pub(crate) mod setup;
