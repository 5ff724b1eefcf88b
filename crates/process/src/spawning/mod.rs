//! Starts a process, and prepares the child before it executes the program.

pub mod hiding;
pub(crate) mod ignored_signals;
pub(crate) mod image;
pub(crate) mod pre_exec;
pub mod rights;
pub(crate) mod spawn;
pub(crate) mod vfork;
