//! Claims and reports of claimants (programs that are not runners), and reports of handlers to their runner.

pub mod claim;
pub mod claimants;
pub(crate) mod not_claimable;
pub mod report;
pub(crate) mod request;
pub mod take_back;
