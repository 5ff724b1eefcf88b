//! Queries a pidfd, which always refers to the same process, even if its PID is reused.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;

use taskqueue_host::clock::poll_wait;

/// Returns true if the process has ended: a pidfd is readable once every thread of its process has ended.
pub(crate) fn has_ended(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    retry_on_intr(|| poll(&mut fds, Some(&poll_wait(Duration::ZERO)))).is_ok_and(|count| count > 0)
}
