//! Processes runs: claims a run, executes it, and records its end.

pub(crate) mod cancel_order;
pub(crate) mod execute;
pub(crate) mod handler_finish;
pub(crate) mod holds;
pub(crate) mod in_process;
pub(crate) mod lease;
pub(crate) mod live_run;
pub(crate) mod outside_program;
pub mod process_run;
pub(crate) mod record;
pub mod register;
pub mod run_listener;
pub(crate) mod runner_context;
pub(crate) mod stopping;
pub(crate) mod unsaved;
