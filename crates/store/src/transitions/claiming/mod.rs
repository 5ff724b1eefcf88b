//! Claims: which run is next, and its start.

pub(crate) mod choose;
pub(crate) mod claim;
pub(crate) mod claim_many;
pub(crate) mod outside_claim;
pub(crate) mod start;
