//! Connections to the store: opening, retrying, migrating, locking, and listening for changes.

pub(crate) mod change_listener;
pub(crate) mod connecting;
pub(crate) mod health;
pub(crate) mod lock_file;
pub(crate) mod lock_notice;
pub(crate) mod migrate;
pub(crate) mod open_file;
