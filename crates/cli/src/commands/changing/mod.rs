//! Verbs that change or remove tasks.

pub(crate) mod cancel;
pub(crate) mod edit;
pub(crate) mod prune;
pub(crate) mod retry;
pub(crate) mod transfer;
