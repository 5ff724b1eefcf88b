//! Verbs that create and process runs.

pub(crate) mod create_runs;
pub(crate) mod process_run;
pub(crate) mod tick;
pub(crate) mod work;
pub(crate) mod work_metrics;
pub(crate) mod work_narrator;
pub(crate) mod work_service;
