//! What a descriptor of a process tells: it never means another process, whatever becomes of the number.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use taskqueue_host::clock::poll_wait;

/// A pidfd is readable once every thread of its process has ended.
pub(crate) fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    loop {
        match poll(&mut fds, Some(&poll_wait(Duration::ZERO))) {
            Err(Errno::INTR) => {}
            Err(_) => return false,
            Ok(count) => return count > 0,
        }
    }
}
