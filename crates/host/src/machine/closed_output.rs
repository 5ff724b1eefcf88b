//! Whether standard output is read, and whether it was open when this process began. Rust's runtime puts /dev/null in the place of what is closed
//! before `main` is called, and from then on everything that is lost there looks written.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, fcntl_getfd};
use rustix::stdio::stdout;

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// The C library calls it before Rust's runtime begins.
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

/// Whether it was closed.
#[must_use]
pub fn output_was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}

/// Whether no process can read what is written to standard output any more: it is a pipe or a socket whose other end is closed.
#[must_use]
pub fn output_has_no_reader() -> bool {
    let output = stdout();
    let mut fds = [PollFd::new(&output, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}
