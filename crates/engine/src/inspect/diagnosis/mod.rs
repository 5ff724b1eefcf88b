//! Why a task does not run, and why nothing runs.

pub mod candidates;
pub(crate) mod conditions;
pub mod explain;
pub(crate) mod reasons;
pub mod standstill;
