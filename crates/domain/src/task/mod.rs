//! Tasks: their types, names, selection and validation.

pub mod checks;
pub mod class_patterns;
pub mod class_set;
pub mod configured;
pub mod data_filter;
pub mod dependencies;
pub mod expiry;
pub mod ids;
pub mod meta;
pub mod name;
pub mod new_task;
pub mod parent;
pub mod records;
pub mod selection;
pub mod task_change;
pub mod task_choice;
pub mod task_class;
pub mod trace;
pub mod unique;
pub mod visible_tasks;
