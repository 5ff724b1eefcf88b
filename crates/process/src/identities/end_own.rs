//! Kills this process.

use rustix::process::{Signal, getpid, kill_process};

/// Kills this process: unlike TERM, KILL cannot be caught.
pub fn kill_own_process() {
    let _ = kill_process(getpid(), Signal::KILL);
}
