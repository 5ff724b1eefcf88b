//! Outcomes on the local disk that were not sent to the database yet.

pub mod outcomes;
pub(crate) mod outcomes_of_many;
