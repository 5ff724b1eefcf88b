//! What the kernel answers: clocks, process identities, signals, child processes, lock files, the host.
//!
//! Knows nothing of tasks, runs or the store, and prints nothing. The only folder with `unsafe` code, all of it in
//! `vfork.rs`, `pre_exec.rs`, `sockets.rs`, `closed_output.rs`, `heap.rs` and `ignored_signals.rs`. The engine and the handlers use it.

pub mod account;
pub mod capture;
pub mod cgroup;
pub mod child;
pub mod claimant;
pub mod clock;
pub mod closed_output;
pub mod command_requests;
pub mod coprocess;
pub mod descriptors;
pub mod direct;
pub mod disk;
pub mod end_own;
pub mod event_socket;
#[cfg(feature = "fault-points")]
pub mod fault;
pub mod file_checks;
pub mod file_watch;
pub mod heap;
pub mod hiding;
pub mod host;
pub mod http;
pub mod identity;
pub mod journal;
pub mod lock;
pub mod lock_holders;
pub mod marks;
pub mod patience;
pub mod random;
pub mod reload_signal;
pub mod replace_file;
pub mod rights;
pub mod signalling;
pub mod sockets;
pub mod spool;
pub mod spooled_lines;
pub mod stop_signals;
pub mod supervisor;
pub mod survivors;
pub mod suspend;
pub mod thread_names;
pub mod trusted_path;
pub mod turn;
pub mod usage;
pub mod waker;

mod adoption;
mod cause;
mod ignored_signals;
mod image;
mod leftovers;
pub(crate) mod lines;
mod listener;
mod observer;
mod pidfd;
mod pre_exec;
pub(crate) mod proc_files;
mod pump;
pub(crate) mod recent;
mod spawn;
#[cfg(test)]
pub(crate) mod testing;
mod vfork;
