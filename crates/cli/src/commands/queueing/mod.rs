//! Verbs that queue tasks.

pub(crate) mod batch_input;
pub(crate) mod exec;
pub(crate) mod queue;
pub(crate) mod queue_and_follow;
pub(crate) mod schedule;
pub(crate) mod schedule_file;
