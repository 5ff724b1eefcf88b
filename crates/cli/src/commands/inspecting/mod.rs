//! Verbs that show tasks, runs, runners and events, or wait for tasks to finish.

pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod failures;
pub(crate) mod logs;
pub(crate) mod runners;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod wait;
