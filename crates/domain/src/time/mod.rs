//! Times: when a task is due or recurs, and how long it is kept.

pub mod recurrence;
pub mod time_zone;
pub mod when;
