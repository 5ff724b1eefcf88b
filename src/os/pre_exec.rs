//! What a handler's process does to itself between fork and exec. Nearly all the unsafe code of the program.
//!
//! Between fork and exec only async-signal-safe calls are allowed: no allocation, no lock, no printing.

use std::ffi::{c_int, c_long};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Resource, Signal, getpid, getppid, getrlimit, set_parent_process_death_signal, setsid};

use super::rights::{Prepared, Step};

/// The descriptor on which a handler writes its events.
pub(super) const EVENTS_FD: c_int = 3;

const F_SETFD: c_int = 2;
const FD_CLOEXEC: c_int = 1;
/// No more are marked one by one, whatever the limit allows.
const MOST_DESCRIPTORS: u64 = 65_536;
const SIG_DFL: usize = 0;
const SIG_SETMASK: c_int = 2;
const LAST_SIGNAL: c_int = 64;
/// The same number on every architecture that this program is built for.
const SYS_CLOSE_RANGE: c_long = 436;
const CLOSE_RANGE_CLOEXEC: c_long = 4;

/// A signal set in the C library's layout, 1024 bits; all zero is the empty set.
#[repr(C, align(8))]
struct SignalSet([u8; 128]);

#[expect(unsafe_code, reason = "the C library's own functions, for which rustix has no stable safe form")]
// SAFETY: the declarations are those of signal(2), sigprocmask(2), dup2(2), syscall(2) and fcntl(2).
unsafe extern "C" {
    fn signal(number: c_int, disposition: usize) -> usize;
    fn sigprocmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
    fn dup2(old: c_int, new: c_int) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
    fn fcntl(descriptor: c_int, command: c_int, ...) -> c_int;
}

/// Makes the child of this command the leader of a session of its own, with default signals, descriptors 0 to 3 only (3
/// being `events`) and these rights, and has it die with us. The caller keeps descriptor 3 of this process occupied:
/// otherwise it might be the pipe on which the standard library waits for the child's exec.
pub(super) fn prepare(command: &mut Command, events: OwnedFd, rights: Prepared) {
    let runner = getpid();
    #[cfg(feature = "fault-points")]
    let fault = super::fault::planned("spawn.forked");
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).min(MOST_DESCRIPTORS);
    let most_descriptors = c_int::try_from(most).unwrap_or(c_int::MAX);
    let in_child = move || {
        #[cfg(feature = "fault-points")]
        if let Some(signal) = fault {
            let _ = rustix::process::kill_process(runner, signal);
        }
        reset_signals_and_descriptors(events.as_fd().as_raw_fd(), most_descriptors)?;
        // A process can leave its group, and never its session but for one of its own: whatever comes from this handler is
        // never in ours.
        setsid().map_err(|errno| Step::Supervision.failed(errno))?;
        rights.apply()?;
        // Last, because the kernel forgets it when the user changes. It comes only for a death after the call, so whether
        // the runner still lives is asked after it.
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(|errno| Step::Supervision.failed(errno))?;
        if getppid() != Some(runner) {
            return Err(Step::Supervision.failed(Errno::SRCH));
        }
        rights.rehearsal_result().map_or(Ok(()), Err)
    };
    #[expect(unsafe_code, reason = "the only way to run code between fork and exec")]
    // SAFETY: the closure makes plain system calls on values it owns; it neither allocates nor locks.
    unsafe {
        command.pre_exec(in_child);
    }
}

/// Runs in the child. An ignored signal and a blocked one would otherwise be inherited through exec: SIGPIPE, which
/// Rust ignores, or SIGHUP and SIGINT of a runner started by nohup or by a shell in the background.
fn reset_signals_and_descriptors(events: c_int, most_descriptors: c_int) -> io::Result<()> {
    let empty = SignalSet([0; 128]);
    #[expect(unsafe_code, reason = "system calls for which rustix has no stable safe form")]
    // SAFETY: all arguments are numbers, but for one pointer to a live set that is only read and one null pointer that
    // sigprocmask allows. All five are async-signal-safe.
    let descriptor = unsafe {
        for number in 1..=LAST_SIGNAL {
            // Fails for KILL, STOP and the C library's own signals, which need no reset.
            signal(number, SIG_DFL);
        }
        sigprocmask(SIG_SETMASK, &raw const empty, std::ptr::null_mut());
        // Database clients do not all mark their sockets close-on-exec, and we may have inherited unmarked descriptors.
        // Marked, not closed: the standard library still reports a failing exec on one of them.
        let first = EVENTS_FD + 1;
        if syscall(SYS_CLOSE_RANGE, c_long::from(first), c_long::from(u32::MAX), CLOSE_RANGE_CLOEXEC) != 0 {
            // Kernels before 5.11 lack it.
            for number in first..most_descriptors {
                fcntl(number, F_SETFD, FD_CLOEXEC);
            }
        }
        dup2(events, EVENTS_FD)
    };
    if descriptor == EVENTS_FD { Ok(()) } else { Err(io::Error::last_os_error()) }
}
