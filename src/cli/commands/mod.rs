//! The verbs, one file each: arguments in, a use case, a report out.

mod attempt_options;
pub(crate) mod cancel;
pub(crate) mod claim;
pub(crate) mod classes;
pub(crate) mod create_runs;
pub(crate) mod edit;
pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod heartbeat;
pub(crate) mod limits;
pub(crate) mod migrate;
pub(crate) mod pauses;
pub(crate) mod process_run;
pub(crate) mod prune;
pub(crate) mod queue;
pub(crate) mod report;
pub(crate) mod requeue;
pub(crate) mod resolve;
pub(crate) mod retry;
pub(crate) mod runners;
pub(crate) mod schedule;
pub(crate) mod settings;
pub(crate) mod status;
pub(crate) mod tick;
pub(crate) mod transfer;
pub(crate) mod work;
mod work_narrator;
mod work_service;

mod links;
mod outcome;
mod reason;
mod selected;
mod show;
mod task_options;
mod unknown_class;
