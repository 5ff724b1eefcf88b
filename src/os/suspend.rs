//! What Ctrl-Z does, for a program that has taken the key over.

use std::io;

use rustix::process::{Signal, kill_current_process_group};

/// Stops this process and those that were started with it, as the terminal does, until the shell lets them go on. Where
/// nobody could let them go on, the kernel stops nobody.
///
/// # Errors
/// When the kernel refuses.
pub fn suspend() -> io::Result<()> {
    Ok(kill_current_process_group(Signal::TSTP)?)
}
