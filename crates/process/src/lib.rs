//! Everything about processes: spawn, capture, identity, signals, limits, and what survives. Knows no store.

#[macro_use]
extern crate taskqueue_host;

mod adoption;
pub mod capture;
mod cause;
pub mod cgroup;
pub mod child;
pub mod claimant;
pub mod command_requests;
pub mod coprocess;
pub mod end_own;
pub mod event_socket;
pub mod hiding;
pub mod identity;
mod ignored_signals;
mod image;
mod leftovers;
pub mod marks;
mod observer;
mod pidfd;
mod pre_exec;
mod pump;
pub mod reload_signal;
pub mod rights;
pub mod signalling;
mod spawn;
pub mod stop_signals;
pub mod supervisor;
pub mod survivors;
pub mod suspend;
pub mod turn;
pub mod usage;
mod vfork;
