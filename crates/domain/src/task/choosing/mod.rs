//! Which tasks or classes are meant: selections, patterns, and which tasks may be seen.

pub mod class_patterns;
pub mod class_set;
pub mod data_filter;
pub mod selection;
pub mod task_choice;
pub mod visible_tasks;
