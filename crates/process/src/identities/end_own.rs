//! Ends this very process.

use rustix::process::{Signal, getpid, kill_process};

/// Kills this process: unlike TERM, nothing in it can take KILL over.
pub fn kill_own_process() {
    let _ = kill_process(getpid(), Signal::KILL);
}
