//! How many files this process may have open: raised for itself, unchanged for its handlers.
//!
//! Handlers get the limit with which this process was started: a program that uses select(2) breaks with numbers of 1024
//! and more.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit with which this process was started, if it was raised since.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit of this process to `wanted`, or to its hard limit where that is lower. A higher one stays.
pub fn raise_limit(wanted: u64) {
    let before = getrlimit(Resource::Nofile);
    let Some(current) = before.current else { return };
    let reachable = before.maximum.map_or(wanted, |most| most.min(wanted));
    if reachable <= current {
        return;
    }
    let raised = Rlimit { current: Some(reachable), maximum: before.maximum };
    if setrlimit(Resource::Nofile, raised).is_ok() {
        let _ = BEFORE.set(before);
    }
}

/// How many files this process may have open; `None` without a limit.
#[must_use]
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Soft and hard limit for a handler whose class sets none, where ours was raised.
pub fn limits_of_handlers() -> Option<(u64, u64)> {
    let before = BEFORE.get()?;
    // All bits set means no limit.
    Some((before.current?, before.maximum.unwrap_or(u64::MAX)))
}
