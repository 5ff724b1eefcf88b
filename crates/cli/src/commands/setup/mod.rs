//! Verbs that set a queue up.

pub(crate) mod classes;
pub(crate) mod completions;
pub(crate) mod init;
pub(crate) mod man;
pub(crate) mod migrate;
pub(crate) mod settings;
