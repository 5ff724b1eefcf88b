//! Handles TSTP (Ctrl-Z) for a full-screen program: the signal is blocked until the terminal is restored, and then has its
//! default effect.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, kill_current_process_group};
use signal_hook::SigId;
use signal_hook::consts::SIGCONT;
use signal_hook::flag;
use signal_hook::low_level::unregister;

use taskqueue_host::clock::poll_wait;

/// Blocks TSTP and records CONT until it is dropped.
#[derive(Debug)]
pub struct Suspension {
    held: SigSet,
    waiting: SignalFd,
    has_continued: Arc<AtomicBool>,
    registered: SigId,
}

impl Suspension {
    /// Blocks TSTP in this thread and in threads that it starts later. Only this thread may query and release it.
    ///
    /// # Errors
    /// The kernel refuses (no descriptors left).
    pub fn hold() -> io::Result<Self> {
        let mut held = SigSet::empty();
        held.add(nix::sys::signal::Signal::SIGTSTP);
        let waiting = SignalFd::with_flags(&held, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let has_continued = Arc::new(AtomicBool::new(false));
        let registered = flag::register(SIGCONT, Arc::clone(&has_continued))?;
        let suspension = Self { held, waiting, has_continued, registered };
        suspension.held.thread_block()?;
        Ok(suspension)
    }

    /// Returns true if TSTP is pending.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        let mut fds = [PollFd::new(&self.waiting, PollFlags::IN)];
        // The descriptor is not read: the signal stays pending until it is released.
        poll(&mut fds, Some(&poll_wait(Duration::ZERO))).is_ok_and(|ready| ready > 0)
    }

    /// Releases the pending signal: this process stops until the shell continues it. The kernel does not stop a process group
    /// that no shell could continue.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn stop(&self) -> io::Result<()> {
        self.held.thread_unblock()?;
        self.held.thread_block()?;
        self.has_continued.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Stops this process and its process group, as the terminal does at Ctrl-Z.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn stop_group(&self) -> io::Result<()> {
        kill_current_process_group(Signal::TSTP)?;
        self.stop()
    }

    /// Returns true if this process was continued since the last call, after a stop that it did not request: another program may
    /// have written to the terminal.
    #[must_use]
    pub fn take_continued(&self) -> bool {
        self.has_continued.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Suspension {
    fn drop(&mut self) {
        let _ = self.held.thread_unblock();
        unregister(self.registered);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use signal_hook::consts::SIGTSTP;
    use signal_hook::low_level::raise;

    use super::*;
    use taskqueue_host::testing::{eventually, run_again_inside};

    /// In its own session, where the kernel stops no process: no shell could continue it.
    #[test]
    fn tstp_is_held_back_until_it_is_let_through_and_cont_is_noted() {
        let name = "signals::suspend::tests::tstp_is_held_back_until_it_is_let_through_and_cont_is_noted";
        if !run_again_inside(&["setsid"], name) {
            return;
        }
        let suspension = Suspension::hold().unwrap();
        assert!(!suspension.is_asked() && !suspension.take_continued());
        raise(SIGTSTP).unwrap();
        assert!(suspension.is_asked() && suspension.is_asked());
        suspension.stop().unwrap();
        assert!(!suspension.is_asked() && !suspension.take_continued());
        raise(SIGCONT).unwrap();
        eventually(|| suspension.take_continued());
        assert!(!suspension.take_continued());
    }
}
