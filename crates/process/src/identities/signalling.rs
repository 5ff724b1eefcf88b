//! Signals to processes that this process did not start, through pidfds only: a pidfd never changes its process, a PID does.
//!
//! Never signals PID 0, PID 1 or this process, and only processes whose identity was checked after the pidfd was opened. A row
//! may have been forged, and a PID may have been reused.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
pub use rustix::process::Signal;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

use crate::identities::identity::{Liveness, ProcessIdentity};
use crate::identities::pidfd::has_ended;
use taskqueue_host::clock::{Moment, poll_wait};

/// A live process that can be signalled without the risk of hitting another one.
#[derive(Debug)]
pub struct ProcessHandle {
    pidfd: OwnedFd,
    pid: i32,
}

impl ProcessHandle {
    /// Opens the process with this identity; `None` if it is dead.
    ///
    /// # Errors
    /// PID 0, PID 1, the PID of this process, a process of another boot or PID namespace, or one that cannot be examined.
    pub fn open(identity: &ProcessIdentity) -> io::Result<Option<Self>> {
        if !identity.is_same_view() {
            return Err(refused("it belongs to another boot or PID namespace"));
        }
        // The identity is compared while the pidfd is open: if it matches, it belongs to the pidfd's process.
        let mut liveness = Liveness::Dead;
        let handle = Self::open_if(identity.pid, |_| {
            liveness = identity.examine()?;
            Ok(liveness == Liveness::Alive)
        })?;
        match liveness {
            Liveness::Unknown => Err(refused("it cannot be seen in /proc")),
            Liveness::Alive | Liveness::Dead => Ok(handle),
        }
    }

    /// Opens the process that has this PID now, if `is_wanted` returns true for what can be read about it in /proc. The answer is
    /// about the opened process, because that one is still alive after the check.
    pub(crate) fn open_if(pid: i32, is_wanted: impl FnOnce(i32) -> io::Result<bool>) -> io::Result<Option<Self>> {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        let raw = if pid > 1 && pid != own { Pid::from_raw(pid) } else { None };
        let raw = raw.ok_or_else(|| refused("PID 0, PID 1 and this process are never signalled"))?;
        let pidfd = match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok((is_wanted(pid)? && !has_ended(&pidfd)).then_some(Self { pidfd, pid }))
    }

    /// Sends a signal; a process that has ended meanwhile is not an error.
    ///
    /// # Errors
    /// This process may not signal it (another user's process).
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks it to end; also sends CONT, because a stopped process would not handle the TERM.
    ///
    /// # Errors
    /// As for [`ProcessHandle::signal`].
    pub fn ask_to_end(&self) -> io::Result<()> {
        self.signal(Signal::TERM)?;
        self.signal(Signal::CONT)
    }

    /// Waits until it has ended, at most `timeout`. Returns true if it has ended.
    #[must_use]
    pub fn wait_gone(&self, timeout: Duration) -> bool {
        wait_all_gone(std::slice::from_ref(self), timeout)
    }

    /// Returns true if all its threads have ended; it may still be a zombie.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        has_ended(&self.pidfd)
    }

    /// Returns its PID, for messages; never for signals.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }
}

impl AsFd for ProcessHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// Waits until all have ended, at most `timeout`. Returns true if all have ended.
pub(crate) fn wait_all_gone(processes: &[ProcessHandle], timeout: Duration) -> bool {
    let deadline = Moment::after(timeout);
    loop {
        let waiting = processes.iter().filter(|process| !process.has_ended()).collect::<Vec<_>>();
        if waiting.is_empty() {
            return true;
        }
        if deadline.has_passed() {
            return false;
        }
        let mut fds = waiting.iter().map(|process| PollFd::new(*process, PollFlags::IN)).collect::<Vec<_>>();
        // An error here is EINTR or lack of memory; the loop tries again until the deadline.
        if poll(&mut fds, Some(&poll_wait(deadline.remaining()))).is_err_and(|error| error != Errno::INTR) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("the process is not signalled: {why}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn forged_pids_are_refused() {
        let own = ProcessIdentity::own().unwrap();
        for pid in [i32::MIN, -1, 0, 1, own.pid] {
            let forged = ProcessIdentity { pid, ..own.clone() };
            assert!(ProcessHandle::open(&forged).is_err(), "{pid}");
        }
        let elsewhere = ProcessIdentity { pid_namespace: 7, ..own };
        assert!(ProcessHandle::open(&elsewhere).is_err());
    }

    #[test]
    fn a_process_with_other_ticks_is_left_alone() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let identity = ProcessIdentity::of_pid(child.id().try_into().unwrap()).unwrap().unwrap();
        let forged = ProcessIdentity { start_ticks: identity.start_ticks - 1, ..identity.clone() };
        assert!(ProcessHandle::open(&forged).unwrap().is_none());
        let handle = ProcessHandle::open(&identity).unwrap().unwrap();
        assert!(!handle.wait_gone(Duration::from_millis(1)));
        handle.signal(Signal::KILL).unwrap();
        assert!(handle.wait_gone(Duration::from_secs(20)));
        child.wait().unwrap();
        handle.signal(Signal::KILL).unwrap();
        assert!(ProcessHandle::open(&identity).unwrap().is_none());
    }

    #[test]
    fn a_stopped_process_sees_the_request_to_end() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let identity = ProcessIdentity::of_pid(child.id().try_into().unwrap()).unwrap().unwrap();
        let handle = ProcessHandle::open(&identity).unwrap().unwrap();
        handle.signal(Signal::STOP).unwrap();
        handle.ask_to_end().unwrap();
        assert!(handle.wait_gone(Duration::from_secs(20)));
        child.wait().unwrap();
    }
}
