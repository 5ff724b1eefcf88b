//! The address of a store: its parts, its hosts, and what is known of a pooler behind it.

pub(crate) mod hosts;
pub(crate) mod pooler;
pub(crate) mod url;
