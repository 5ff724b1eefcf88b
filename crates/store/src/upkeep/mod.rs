//! Care of the store: rows past their retention period, copies, and damage.

pub(crate) mod backup;
pub(crate) mod cleanup;
pub mod damage;
pub(crate) mod prunable;
pub(crate) mod prune;
