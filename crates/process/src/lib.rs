//! Everything about processes: spawn, capture, identity, signals, limits, and what survives. Knows no store.

#[macro_use]
extern crate taskqueue_host;

pub mod children;
pub mod identities;
pub mod signals;
pub mod spawning;
