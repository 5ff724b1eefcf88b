//! Which process is which, whether it lives, and what is left of one that died.

pub mod cgroup;
pub mod claimant;
pub mod end_own;
pub mod identity;
pub mod marks;
pub(crate) mod pidfd;
pub mod survivors;
pub mod turn;
pub mod usage;
