//! The verbs, one file each: arguments in, a use case, a report out.

pub(crate) mod classes;
pub(crate) mod create_runs;
pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod limits;
pub(crate) mod migrate;
pub(crate) mod pauses;
pub(crate) mod process_run;
pub(crate) mod queue;
pub(crate) mod report;
pub(crate) mod retry;
pub(crate) mod runners;
pub(crate) mod schedule;
pub(crate) mod settings;
pub(crate) mod status;
pub(crate) mod tick;

mod links;
mod outcome;
mod show;
mod task_options;
