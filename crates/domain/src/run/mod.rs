//! Runs: their statuses, how they end, and what follows.

pub mod attempt_outcome;
pub mod backoff;
pub mod claimant;
pub mod confinement;
pub mod decision;
pub mod ending;
pub mod exit_rules;
pub mod follow;
pub mod lease;
pub mod limits;
pub mod message;
pub mod notice;
pub mod status;
pub mod stop_reason;
pub mod transition;
