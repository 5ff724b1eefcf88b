//! Runs: their statuses, how they end, and what follows.

pub mod attempt_outcome;
pub mod backoff;
pub mod claimant;
pub mod decision;
pub mod due;
pub mod ending;
pub mod exit_rules;
pub mod message;
pub mod retention;
pub mod status;
pub mod stop_reason;
pub mod transition;
pub mod usage;
