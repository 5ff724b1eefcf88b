//! Whether standard output has a reader, and whether it was open when this process started. Rust's runtime opens /dev/null in
//! place of a closed descriptor before `main`; output written there is lost without an error.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, fcntl_getfd};
use rustix::stdio::stdout;

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Called by the C library before Rust's runtime starts.
#[expect(unsafe_code, reason = "the only way to be called before Rust's runtime begins")]
#[used]
// SAFETY: the section holds addresses of functions that are called without a need for their arguments; this one makes a
// system call and stores a byte, and needs nothing of a runtime.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    if fcntl_getfd(stdout()) == Err(Errno::BADF) {
        WAS_CLOSED.store(true, Ordering::Relaxed);
    }
}

/// Returns true if standard output was closed.
#[must_use]
pub fn output_was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}

/// Returns true if standard output is a pipe or socket whose other end is closed, so that no process can read it.
#[must_use]
pub fn output_has_no_reader() -> bool {
    let output = stdout();
    let mut fds = [PollFd::new(&output, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}
