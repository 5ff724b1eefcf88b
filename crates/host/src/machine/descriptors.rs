//! The limit of open files: raised for this process, unchanged for its handlers.
//!
//! Handlers get the limit with which this process was started: programs that use select(2) fail with descriptors of 1024 and
//! more.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit with which this process was started, if it was raised later.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit of this process to `wanted`, or to its hard limit if that is lower. A higher limit is kept.
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

/// Returns how many files this process may have open; `None` means no limit.
#[must_use]
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Returns the soft and hard limit for handlers whose class sets none, if the limit of this process was raised.
pub fn limits_of_handlers() -> Option<(u64, u64)> {
    let before = BEFORE.get()?;
    // All bits set means no limit.
    Some((before.current?, before.maximum.unwrap_or(u64::MAX)))
}
