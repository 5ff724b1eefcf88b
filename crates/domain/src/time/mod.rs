//! Times: when a task is due or recurs, and how long it is kept.

pub mod due;
pub mod histogram;
pub mod recurrence;
pub mod retention;
pub mod time_line;
pub mod time_zone;
pub mod when;
