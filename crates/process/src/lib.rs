//! Processes: spawning, capture, identity, signals, limits, and survivors. Does not depend on the store.

#[macro_use]
extern crate taskqueue_host;

pub mod children;
pub mod identities;
pub mod signals;
pub mod spawning;
pub mod tools;
