//! Tasks: their types, names, selection and validation.

pub mod checks;
pub mod choosing;
pub mod configured;
pub mod dependencies;
pub mod expiry;
pub mod ids;
pub mod meta;
pub mod name;
pub mod new_task;
pub mod parent;
pub mod records;
pub mod task_change;
pub mod task_class;
pub mod trace;
pub mod unique;
