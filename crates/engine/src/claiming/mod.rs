//! Claims for programs that are no runners, and reports of handlers to their runner.

pub mod claim;
pub mod claimants;
pub mod orders;
pub mod report;
