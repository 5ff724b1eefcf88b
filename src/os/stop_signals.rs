//! HUP, INT, QUIT and TERM, counted outside of any signal handler, and a descriptor that poll loops can watch.
//!
//! The command line installs it once; whoever waits for anything asks it. What stopping means is decided elsewhere.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, recv};
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level::{pipe, unregister};

use super::clock::{Moment, poll_wait};
use super::proc_files::ignores_signal;

/// More signals than this are not told apart.
const COUNTED: usize = 8;

/// Counts its signals; QUIT, which means "now", counts as two. After it is dropped, the signals are ignored.
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
        if !ignores_signal(SIGQUIT)? {
            signals.registered.push(pipe::register(SIGQUIT, writer.try_clone()?)?);
        }
        Ok(signals)
    }

    /// Whether one of the signals has come.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.wait(Duration::ZERO)
    }

    /// How many have come.
    #[must_use]
    pub fn count(&self) -> usize {
        count(&self.reader)
    }

    /// The same question for another thread.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn counter(&self) -> io::Result<impl Fn() -> usize + Send + use<>> {
        let reader = self.reader.try_clone()?;
        Ok(move || count(&reader))
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

impl Drop for StopSignals {
    fn drop(&mut self) {
        for id in self.registered.drain(..) {
            unregister(id);
        }
    }
}

/// One byte was written for each signal, and none is ever taken out.
fn count(reader: &UnixStream) -> usize {
    let mut bytes = [0; COUNTED];
    recv(reader, &mut bytes, RecvFlags::PEEK | RecvFlags::DONTWAIT).map_or(0, |(count, _)| count)
}

/// A descriptor that is not readable until somebody says so, and stays so then.
#[derive(Debug)]
pub struct Alarm {
    reader: UnixStream,
    writer: UnixStream,
}

impl Alarm {
    /// # Errors
    /// When no descriptor is left.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        Ok(Self { reader, writer })
    }

    /// Makes it readable. More than once changes nothing.
    pub fn ring(&self) {
        // Nobody reads the byte, so that the descriptor stays readable.
        let _ = self.writer.shutdown(std::net::Shutdown::Write);
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::os::testing::{eventually, run_again_inside};

    /// In a process of its own, because the signals go to the whole test program.
    #[test]
    fn each_signal_is_counted_and_none_is_forgotten() {
        let name = "os::stop_signals::tests::each_signal_is_counted_and_none_is_forgotten";
        if !run_again_inside(&["env", "--default-signal"], name) {
            return;
        }
        for (number, weight) in [(SIGTERM, 1), (SIGINT, 1), (SIGHUP, 1), (SIGQUIT, 2)] {
            let signals = StopSignals::install().unwrap();
            let count = signals.counter().unwrap();
            assert!(!signals.is_stopping() && signals.count() == 0 && count() == 0);
            for times in 1..=2 {
                signal_hook::low_level::raise(number).unwrap();
                eventually(|| signals.count() == times * weight);
                assert!(signals.is_stopping() && count() == times * weight);
            }
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

    #[test]
    fn an_alarm_is_readable_once_it_has_rung() {
        let alarm = Alarm::new().unwrap();
        let is_readable = || {
            let mut fds = [PollFd::new(&alarm, PollFlags::IN)];
            poll(&mut fds, Some(&poll_wait(Duration::ZERO))).unwrap() == 1
        };
        assert!(!is_readable());
        alarm.ring();
        alarm.ring();
        assert!(is_readable());
    }
}
