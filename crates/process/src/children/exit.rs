//! Reads how a process has ended and what it used, in one system call and without reaping it.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI64, Ordering};

use nix::sys::resource::{UsageWho, getrusage};
use rustix::io::Errno;

use taskqueue_domain::run::ending::Ending;
use taskqueue_domain::run::usage::Usage;

/// How a process has ended, and what it used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    pub(crate) ending: Ending,
    /// `None` if other code in this process has already waited for it.
    pub(crate) usage: Option<Usage>,
}

impl Exit {
    /// Reads the exit of a child that has ended.
    pub(crate) fn of(pidfd: BorrowedFd<'_>) -> Self {
        let Some(found) = wait_without_reaping(pidfd) else {
            return Self { ending: Ending::Signalled(0), usage: None };
        };
        let ending = match found.code {
            libc::CLD_EXITED => Ending::Exited(found.status),
            _ => Ending::Signalled(found.status),
        };
        Self { ending, usage: Some(usage_of(&found.used)) }
    }
}

/// What the kernel reports of an ended child.
struct Found {
    code: i32,
    status: i32,
    used: libc::rusage,
}

/// Waits with NOWAIT, by the system call: the functions of rustix and of the C library return no usage.
fn wait_without_reaping(pidfd: BorrowedFd<'_>) -> Option<Found> {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    loop {
        #[expect(unsafe_code, reason = "no safe form of this system call returns what a child used")]
        // SAFETY: both types are plain data for which zeros are valid, and the kernel writes at most that much. The status is a
        // field of the variant that it writes for a child.
        let (result, code, status, used) = unsafe {
            let (mut info, mut used): (libc::siginfo_t, libc::rusage) = std::mem::zeroed();
            let (id, info_at, used_at) = (pidfd.as_raw_fd(), &raw mut info, &raw mut used);
            let result = libc::syscall(libc::SYS_waitid, libc::P_PIDFD, id, info_at, options, used_at);
            (result, info.si_code, info.si_status(), used)
        };
        if result == 0 {
            // The code is zero as long as the child has not ended.
            return (code != 0).then_some(Found { code, status, used });
        }
        if Errno::from_io_error(&std::io::Error::last_os_error()) != Some(Errno::INTR) {
            return None;
        }
    }
}

fn usage_of(used: &libc::rusage) -> Usage {
    let micros = |time: libc::timeval| time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_usec);
    let cpu_micros = micros(used.ru_utime).saturating_add(micros(used.ru_stime));
    Usage { cpu_msecs: cpu_micros.saturating_add(500) / 1000, peak_memory_bytes: own_peak_bytes(used.ru_maxrss) }
}

/// Returns the peak memory of a child, unless it is not above the peak of this process. A child shares this process's memory until
/// it executes its program, and the kernel counts that memory as the child's.
fn own_peak_bytes(child_kib: i64) -> Option<i64> {
    /// The peak never falls, so most children need no further system call.
    static OUR_KIB: AtomicI64 = AtomicI64::new(0);
    if child_kib <= OUR_KIB.load(Ordering::Relaxed) {
        return None;
    }
    let our_kib = getrusage(UsageWho::RUSAGE_SELF).ok()?.max_rss();
    OUR_KIB.fetch_max(our_kib, Ordering::Relaxed);
    (child_kib > our_kib).then(|| child_kib.saturating_mul(1024))
}
