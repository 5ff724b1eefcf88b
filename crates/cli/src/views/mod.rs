//! How what happens is printed; the words and shapes themselves are in `crates/views`.

pub(crate) mod final_failures;
pub(crate) mod outcome;
pub(crate) mod task_view;
pub(crate) mod unknown_class;
