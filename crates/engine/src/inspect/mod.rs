//! Queries for operators; they change nothing.

pub mod candidates;
pub mod check;
pub(crate) mod conditions;
pub mod doctor;
pub(crate) mod end_watch;
pub mod events;
pub mod explain;
pub mod failures;
pub mod logs;
pub mod metrics;
pub mod metrics_text;
pub(crate) mod reasons;
pub mod standstill;
pub mod status;
pub mod top;
pub mod wait;
