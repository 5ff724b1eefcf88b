//! A process as a runner: its registration, its leases, the orders of operators.

pub(crate) mod holds;
pub(crate) mod lease;
pub mod orders;
pub mod register;
pub(crate) mod runner_context;
pub(crate) mod silence;
pub(crate) mod stopping;
