//! A connection to a store: opened, retried, migrated and watched for changes.

pub(crate) mod change_listener;
pub(crate) mod connecting;
pub(crate) mod health;
pub(crate) mod key_race;
pub(crate) mod migrate;
pub(crate) mod open_file;
pub(crate) mod opening;
pub(crate) mod origin;
pub(crate) mod receipts;
pub(crate) mod store;
