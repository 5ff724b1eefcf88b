//! The JSON interface.

pub(crate) mod events;
pub(crate) mod json;
pub(crate) mod openapi;
pub(crate) mod operations;
pub(crate) mod tasks;
pub(crate) mod worker;
