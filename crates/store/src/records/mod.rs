//! Single rows: tasks, runs, their outputs, their messages, notices.

pub(crate) mod notices;
pub(crate) mod outputs;
pub(crate) mod runs;
pub(crate) mod task_messages;
pub(crate) mod tasks;
