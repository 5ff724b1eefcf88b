//! The pages of tasks: lists, one task, its log, its form, and what the buttons do.

pub(crate) mod ansi;
pub(crate) mod changes;
pub(crate) mod columns;
pub(crate) mod edit;
pub(crate) mod json_tree;
pub(crate) mod list;
pub(crate) mod log;
pub(crate) mod selections;
pub(crate) mod task;
pub(crate) mod time_line;
