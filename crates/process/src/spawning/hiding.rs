//! Hides this process from other processes of its user: its environment and memory may contain a password.

use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// Makes `/proc/PID/environ`, the memory and the descriptors of this process unreadable for other processes without root's
/// rights, debuggers included. Disables core dumps. A program that it executes is not affected.
///
/// # Errors
/// The kernel refuses.
pub fn hide_process() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
