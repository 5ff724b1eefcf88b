//! Programs that claim runs, and what a handler reports from inside.

pub mod claim;
pub mod claimants;
pub mod orders;
pub mod report;
