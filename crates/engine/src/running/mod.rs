//! Processes runs: claims a run, executes it, and records its end.

pub(crate) mod cancel_order;
pub(crate) mod execute;
pub(crate) mod handler_finish;
pub(crate) mod in_process;
pub(crate) mod live_run;
pub mod process_run;
pub(crate) mod record;
pub mod run_listener;
pub mod runner;
pub mod tick;
pub mod try_class;
pub(crate) mod unsaved;
