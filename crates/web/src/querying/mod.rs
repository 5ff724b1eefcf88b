//! The threads that ask the database, what they keep, and what of their answers is hidden.

pub(crate) mod cached;
pub(crate) mod database;
pub(crate) mod hidden;
pub(crate) mod jobs;
