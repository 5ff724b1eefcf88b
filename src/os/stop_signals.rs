//! HUP, INT, QUIT and TERM as a descriptor that poll loops watch, so that nothing runs inside a signal handler.
//!
//! The command line installs it once; whoever waits for anything polls it. What stopping means is decided elsewhere.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level::{pipe, unregister};

use super::clock::{Moment, poll_wait};
use super::proc_files::ignores_signal;

/// Becomes readable with the first of its signals, and stays so. After it is dropped, the signals are ignored.
#[derive(Debug)]
pub struct StopSignals {
    reader: UnixStream,
    registered: Vec<SigId>,
}

impl StopSignals {
    /// Takes over HUP, INT, QUIT and TERM for this process. HUP and QUIT stay ignored where we were started so: by nohup,
    /// or by a shell in the background.
    ///
    /// # Errors
    /// When the kernel refuses (no descriptors left), or hides what is ignored.
    pub fn install() -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        let mut signals = Self { reader, registered: Vec::new() };
        for number in [SIGTERM, SIGINT] {
            signals.registered.push(pipe::register(number, writer.try_clone()?)?);
        }
        for number in [SIGHUP, SIGQUIT] {
            if !ignores_signal(number)? {
                signals.registered.push(pipe::register(number, writer.try_clone()?)?);
            }
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
    fn each_signal_makes_it_readable_and_it_stays_so() {
        let name = "os::stop_signals::tests::each_signal_makes_it_readable_and_it_stays_so";
        if !run_again_inside(&["env", "--default-signal"], name) {
            return;
        }
        for number in [SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
            let signals = StopSignals::install().unwrap();
            assert!(!signals.is_stopping());
            signal_hook::low_level::raise(number).unwrap();
            eventually(|| signals.is_stopping());
            assert!(signals.is_stopping());
        }
    }

    #[test]
    fn what_was_ignored_from_the_start_stays_ignored() {
        let name = "os::stop_signals::tests::what_was_ignored_from_the_start_stays_ignored";
        if !run_again_inside(&["env", "--ignore-signal=HUP,QUIT"], name) {
            return;
        }
        let signals = StopSignals::install().unwrap();
        for number in [SIGHUP, SIGQUIT] {
            signal_hook::low_level::raise(number).unwrap();
        }
        assert!(!signals.is_stopping() && ignores_signal(SIGHUP).unwrap());
        signal_hook::low_level::raise(SIGTERM).unwrap();
        eventually(|| signals.is_stopping());
    }
}
