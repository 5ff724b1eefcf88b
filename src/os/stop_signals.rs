//! TERM and INT as a descriptor that poll loops watch, so that nothing runs inside a signal handler.
//!
//! The command line installs it once; whoever waits for anything polls it. What stopping means is decided elsewhere.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::{pipe, unregister};

use super::clock::{Moment, poll_wait};

/// Becomes readable with the first TERM or INT, and stays so. After it is dropped, the signals are ignored.
#[derive(Debug)]
pub struct StopSignals {
    reader: UnixStream,
    registered: Vec<SigId>,
}

impl StopSignals {
    /// Takes over TERM and INT for this process.
    ///
    /// # Errors
    /// When the kernel refuses (no descriptors left).
    pub fn install() -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        let mut signals = Self { reader, registered: Vec::new() };
        for number in [SIGTERM, SIGINT] {
            signals.registered.push(pipe::register(number, writer.try_clone()?)?);
        }
        Ok(signals)
    }

    /// Whether one of the signals has come.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.wait(Duration::ZERO)
    }

    /// Waits for at most so long, and says whether one of the signals has come.
    pub fn wait(&self, limit: Duration) -> bool {
        let mut fds = [PollFd::new(&self.reader, PollFlags::IN)];
        let until = Moment::after(limit);
        // Interrupted by the very signal: asked again.
        loop {
            match poll(&mut fds, Some(&poll_wait(until.remaining()))) {
                Err(rustix::io::Errno::INTR) => {}
                answer => return answer.is_ok_and(|count| count > 0),
            }
        }
    }
}

impl AsFd for StopSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

impl Drop for StopSignals {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            unregister(id);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::os::testing::{eventually, run_again_inside};

    /// In a process of its own, because the signals go to the whole test program.
    #[test]
    fn term_and_int_make_it_readable_and_it_stays_so() {
        let name = "os::stop_signals::tests::term_and_int_make_it_readable_and_it_stays_so";
        if !run_again_inside(&["env"], name) {
            return;
        }
        for number in [SIGTERM, SIGINT] {
            let signals = StopSignals::install().unwrap();
            assert!(!signals.is_stopping());
            signal_hook::low_level::raise(number).unwrap();
            eventually(|| signals.is_stopping());
            assert!(signals.is_stopping());
        }
    }
}
