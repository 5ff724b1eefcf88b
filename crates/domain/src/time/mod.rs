//! Times: when a task is due, recurs, or is kept no longer.

pub mod due;
pub mod histogram;
pub mod recurrence;
pub mod retention;
pub mod time_line;
pub mod time_zone;
pub mod when;
