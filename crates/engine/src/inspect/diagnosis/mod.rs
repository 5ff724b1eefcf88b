//! Why a task does not run, and why nothing runs.

pub mod candidates;
pub(crate) mod conditions;
pub mod explain;
pub mod hung;
pub(crate) mod reasons;
pub mod standstill;
