//! Changes tasks and pauses.

pub(crate) mod change_tasks;
pub(crate) mod changes;
pub(crate) mod edit;
pub(crate) mod pauses;
pub(crate) mod retry;
