//! Options that several verbs share.

pub(crate) mod attempt_options;
pub(crate) mod local_zone;
pub(crate) mod reason;
pub(crate) mod selected;
pub(crate) mod task_options;
