//! Queries that change nothing.

pub(crate) mod candidates;
mod due;
mod ended_pages;
pub(crate) mod ends;
pub(crate) mod event_log;
pub(crate) mod failed_attempts;
pub(crate) mod failures;
pub(crate) mod heads;
pub(crate) mod measuring;
pub(crate) mod schedules;
pub(crate) mod selections;
pub(crate) mod status;
