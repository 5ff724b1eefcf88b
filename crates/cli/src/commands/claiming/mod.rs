//! Verbs for handlers and for your own workers.

pub(crate) mod claim;
pub(crate) mod heartbeat;
pub(crate) mod release;
pub(crate) mod report;
pub(crate) mod resolve;
pub(crate) mod send_message;
pub(crate) mod worker;
