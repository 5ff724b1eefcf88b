//! What TSTP does, by Ctrl-Z or from another terminal, to a program that draws on all of its own: it is held back until the
//! terminal has been given back, and then does what it does to every program.

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

/// Holds TSTP back and notes that CONT has come, until it is dropped.
#[derive(Debug)]
pub struct Suspension {
    held: SigSet,
    waiting: SignalFd,
    has_continued: Arc<AtomicBool>,
    registered: SigId,
}

impl Suspension {
    /// Holds it back in this thread, which alone may ask and let it through, and in those that it starts from now on.
    ///
    /// # Errors
    /// When the kernel refuses (no descriptors left).
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

    /// Whether it has come and is held back.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        let mut fds = [PollFd::new(&self.waiting, PollFlags::IN)];
        // Nobody reads it there: it stays until it is let through.
        poll(&mut fds, Some(&poll_wait(Duration::ZERO))).is_ok_and(|ready| ready > 0)
    }

    /// Lets through what is held back: this process stops until the shell lets it go on. Where nobody could let it go on, the
    /// kernel stops nobody.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn stop(&self) -> io::Result<()> {
        self.held.thread_unblock()?;
        self.held.thread_block()?;
        self.has_continued.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Stops this process and those that were started with it, as the terminal does at Ctrl-Z.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn stop_group(&self) -> io::Result<()> {
        kill_current_process_group(Signal::TSTP)?;
        self.stop()
    }

    /// Whether somebody has let this process go on since the last question, after a stop that it was not asked for: what is on
    /// the terminal may be somebody else's.
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

    /// In a session of its own, where the kernel stops nobody: there is no shell that could let it go on.
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
