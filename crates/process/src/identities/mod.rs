//! Identifies processes, determines whether they are alive, and finds what is left of dead ones.

pub(crate) mod adoption;
pub mod cgroup;
pub mod claimant;
pub mod end_own;
pub mod identity;
pub mod marks;
pub(crate) mod pidfd;
#[cfg(test)]
mod scarcity;
pub mod signalling;
pub mod survivors;
pub mod turn;
pub mod usage;
