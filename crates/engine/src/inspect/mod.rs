//! Queries for operators; they change nothing.

pub mod diagnosis;
pub mod doctor;
pub(crate) mod end_watch;
pub mod ends;
pub mod events;
pub mod failures;
pub mod log_stream;
pub mod logs;
pub mod monitoring;
pub mod starts;
pub mod status;
pub mod top;
mod trouble;
pub mod wait;
