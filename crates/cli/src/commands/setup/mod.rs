//! Verbs for setup: configuration, tables, settings, shell completions, manual pages.

pub(crate) mod class_edit;
pub(crate) mod class_test;
pub(crate) mod classes;
pub(crate) mod completions;
pub(crate) mod db;
pub(crate) mod init;
pub(crate) mod init_install;
pub(crate) mod init_task;
pub(crate) mod man;
mod migrate;
pub(crate) mod settings;
