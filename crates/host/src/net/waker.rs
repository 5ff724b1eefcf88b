//! Wakes a thread that waits for other threads or for input.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{read, write};

use crate::clock::poll_wait;

/// Lets a thread wait and others wake it. A wake before the wait is not lost.
#[derive(Debug)]
pub struct Waker {
    event: OwnedFd,
}

impl Waker {
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Ends the current wait, or the next one.
    pub fn wake(&self) {
        // It can only fail if the counter overflows, and then it is set.
        let _ = write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Waits until another thread wakes it or there is something to read, for at most `limit`.
    pub fn wait(&self, readable: Option<BorrowedFd<'_>>, limit: Duration) {
        let mut fds = vec![PollFd::new(&self.event, PollFlags::IN)];
        fds.extend(readable.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // An interrupted wait is just a short one: the caller checks again anyway.
        let _ = poll(&mut fds, Some(&poll_wait(limit)));
        let _ = read(&self.event, &mut [0; 8]);
    }

    /// Same as [`Waker::wait`], also for other descriptors. Returns the index of the first one that is readable.
    pub fn wait_beside(&self, others: &[BorrowedFd<'_>], limit: Duration) -> Option<usize> {
        let own = PollFd::new(&self.event, PollFlags::IN);
        let others = others.iter().map(|other| PollFd::from_borrowed_fd(*other, PollFlags::IN));
        let mut fds: Vec<_> = std::iter::once(own).chain(others).collect();
        if poll(&mut fds, Some(&poll_wait(limit))).is_err() {
            return None;
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let ready = fds.iter().skip(1).position(is_ready);
        if fds.first().is_some_and(is_ready) {
            let _ = read(&self.event, &mut [0; 8]);
        }
        ready
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::Moment;

    #[test]
    fn a_wait_ends_when_somebody_wakes_it_before_or_meanwhile() {
        let waker = Arc::new(Waker::new().unwrap());
        let long = Duration::from_secs(60);
        let started = Moment::now();
        waker.wake();
        waker.wait(None, long);
        let other = Arc::clone(&waker);
        let waking = std::thread::spawn(move || other.wake());
        waker.wait(None, long);
        waking.join().unwrap();
        assert!(started.elapsed() < long);
        waker.wait(None, Duration::from_millis(1));
    }

    #[test]
    fn a_wait_beside_others_says_which_of_them_is_ready() {
        let (waker, other) = (Waker::new().unwrap(), Waker::new().unwrap());
        let long = Duration::from_secs(60);
        waker.wake();
        assert_eq!(waker.wait_beside(&[other.as_fd()], long), None);
        other.wake();
        assert_eq!(waker.wait_beside(&[other.as_fd()], long), Some(0), "and it stays so: it is not ours to read");
        assert_eq!(waker.wait_beside(&[waker.as_fd(), other.as_fd()], long), Some(1));
    }
}
