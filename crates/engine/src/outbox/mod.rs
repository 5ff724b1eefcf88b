//! Outcomes that wait on the local disk for the database.

pub mod outcomes;
pub(crate) mod outcomes_of_many;
