//! Adds tasks, and moves them between stores.

pub mod configured;
pub mod import;
pub mod own_queue;
pub mod program_path;
pub mod queue;
pub mod queue_batch;
pub mod queue_in;
pub mod schedule_run;
pub mod transfer;
