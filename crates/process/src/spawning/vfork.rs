//! Creates the process of a handler with `clone`, sharing memory until it executes its program, as posix_spawn(3) does. A fork
//! would copy page tables that the child discards at once.
//!
//! The calling thread waits meanwhile while other threads continue: the child must not change any memory of this process. It
//! reports failures through shared memory, so no pipe is needed.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::ptr;

use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use super::rights::{Refusal, RightsFailure};

/// An inaccessible guard area below the stack; a multiple of every page size.
const GUARD_BYTES: usize = 64 * 1024;
/// The stack of a child, far more than it needs; untouched pages are never allocated.
const STACK_BYTES: usize = 128 * 1024;
const ROOM_BYTES: usize = GUARD_BYTES + STACK_BYTES;
/// At the upper end of the area, above the start of the stack.
const REPORT_BYTES: usize = 64;
/// The kernel's size of a signal set.
pub(crate) const KERNEL_SET_BYTES: usize = 8;

const _: () = assert!(size_of::<Option<Refusal>>() <= REPORT_BYTES && align_of::<Option<Refusal>>() <= REPORT_BYTES);

/// A child that was not waited for.
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
}

impl Process {
    /// Waits for its end and reaps it.
    pub(crate) fn reap(self) {
        let _ = retry_on_intr(|| waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED));
    }

    /// Kills and reaps it.
    pub(crate) fn end(self) {
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        self.reap();
    }
}

/// How the child gets this process's memory until it executes its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildMemory {
    /// Shared memory.
    Shared,
    /// A copy, for a child that becomes another user. With shared memory, other processes of that user could access this
    /// process's memory through the child. To prevent that, the kernel would restrict this process as well as the child.
    Copied,
}

/// Starts a process that calls `in_child` and ends. `in_child` executes a program, so it returns only on failure. Signals are
/// blocked in it.
///
/// # Errors
/// What `in_child` returned, or why the process could not be created.
#[expect(unsafe_code, reason = "only the caller knows what is done in the child")]
// SAFETY: the caller must ensure that the closure makes only plain system calls, does not allocate, lock or panic, and changes no
// memory of this process except its own.
pub(crate) unsafe fn start(memory: ChildMemory, in_child: &dyn Fn() -> Refusal) -> Result<Process, RightsFailure> {
    let kept = ROOM.try_with(Cell::take).ok().flatten();
    let room = kept.map_or_else(ChildStack::new, Ok)?;
    let started = room.start(memory, in_child);
    let _ = ROOM.try_with(|kept| kept.set(Some(room)));
    started
}

thread_local! {
    /// Kept for the next child: a thread has only one child at a time that shares its memory.
    static ROOM: Cell<Option<ChildStack>> = const { Cell::new(None) };
}

/// A stack for a child and the space for its report. Shared even with a child that otherwise has a copy of the memory.
struct ChildStack {
    base: *mut c_void,
}

/// What the child reads at the address it is given.
struct ChildCall<'a> {
    in_child: &'a dyn Fn() -> Refusal,
    report: *mut Option<Refusal>,
}

impl ChildStack {
    fn new() -> io::Result<Self> {
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        #[expect(unsafe_code, reason = "memory that two processes have can be had by a system call only")]
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base = unsafe { libc::mmap(ptr::null_mut(), ROOM_BYTES, rights, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let room = Self { base };
        #[expect(unsafe_code, reason = "as above")]
        // SAFETY: it is this process's own mapping, at least that long, and still empty.
        if unsafe { libc::mprotect(room.base, GUARD_BYTES, libc::PROT_NONE) } == 0 {
            Ok(room)
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Aligned for any type; the stack grows down from it.
    fn report(&self) -> *mut Option<Refusal> {
        self.base.wrapping_byte_add(ROOM_BYTES - REPORT_BYTES).cast()
    }

    fn start(&self, memory: ChildMemory, in_child: &dyn Fn() -> Refusal) -> Result<Process, RightsFailure> {
        let shared = if memory == ChildMemory::Shared { libc::CLONE_VM } else { 0 };
        let flags = libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD | shared;
        let mut pidfd: c_int = -1;
        let report = self.report();
        let call = ChildCall { in_child, report };
        let argument = (&raw const call).cast_mut().cast();
        let blocked = AllBlocked::now();
        #[expect(unsafe_code, reason = "neither the standard library nor rustix can start a process like this")]
        // SAFETY: the report is inside the mapping, aligned. The child uses the part below it as its stack. Its call outlives it,
        // because with VFORK this thread continues only after the child has executed its program or ended; the caller is
        // responsible for what the call does. No signal handler of this process runs in the child, because all signals are
        // blocked. The kernel writes the descriptor to a variable of this type, which has no other owner.
        let (pid, pidfd, refusal) = unsafe {
            report.write(None);
            let pid = libc::clone(enter, report.cast(), flags, argument, &raw mut pidfd);
            if pid < 0 {
                return Err(io::Error::last_os_error().into());
            }
            (pid, OwnedFd::from_raw_fd(pidfd), report.read_volatile())
        };
        drop(blocked);
        let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("the kernel gave no PID"))?;
        let process = Process { pid, pidfd };
        match refusal {
            Some(refusal) => {
                process.reap();
                Err(refusal.into())
            }
            None => Ok(process),
        }
    }
}

impl Drop for ChildStack {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "as for the mapping")]
        // SAFETY: it is this process's own mapping, no longer used.
        unsafe {
            libc::munmap(self.base, ROOM_BYTES);
        }
    }
}

/// Runs in the child.
extern "C" fn enter(call: *mut c_void) -> c_int {
    #[expect(unsafe_code, reason = "the C library hands over nothing but an address")]
    // SAFETY: it is the address of a call that the starting thread keeps while it waits, and its report is in a shared mapping.
    unsafe {
        let call = &*call.cast::<ChildCall<'_>>();
        let refusal = (call.in_child)();
        call.report.write(Some(refusal));
    }
    1
}

/// Blocks all signals for this thread while it exists: signal handlers would run in the child too, in shared memory. Uses the
/// system call directly, because the C library leaves out two signals that it uses itself.
struct AllBlocked {
    before: u64,
}

impl AllBlocked {
    fn now() -> Self {
        Self { before: set_blocked(u64::MAX) }
    }
}

impl Drop for AllBlocked {
    fn drop(&mut self) {
        set_blocked(self.before);
    }
}

/// Sets the blocked signals and returns the previous ones. Also called in the child.
pub(crate) fn set_blocked(signals: u64) -> u64 {
    let mut before = 0_u64;
    #[expect(unsafe_code, reason = "a system call for which rustix has no stable safe form")]
    // SAFETY: two live sets of the given size. It can fail only for a wrong size.
    unsafe {
        let (new, old) = (&raw const signals, &raw mut before);
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, old, KERNEL_SET_BYTES);
    }
    before
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicI32, Ordering};

    use rustix::io::Errno;
    use rustix::process::getpid;

    use super::super::rights::ExecStep;
    use super::*;

    fn refused_in(memory: ChildMemory, in_child: &dyn Fn() -> Refusal) -> RightsFailure {
        #[expect(unsafe_code, reason = "as everywhere that a process is made")]
        // SAFETY: the closures below make plain system calls and store to an integer created for that.
        let started = unsafe { start(memory, in_child) };
        started.map(Process::end).unwrap_err()
    }

    #[test]
    fn a_child_has_our_memory_or_a_copy_and_says_either_way_why_it_failed() {
        for (memory, is_ours) in [(ChildMemory::Shared, true), (ChildMemory::Copied, false)] {
            let seen = AtomicI32::new(0);
            let blocked = set_blocked(1 << 9);
            let failure = refused_in(memory, &|| {
                seen.store(getpid().as_raw_nonzero().get(), Ordering::Relaxed);
                ExecStep::Directory.refused(Errno::NOTDIR)
            });
            let after = set_blocked(blocked);
            assert_eq!(failure.step, Some(ExecStep::Directory));
            assert_eq!(failure.error.raw_os_error(), Some(Errno::NOTDIR.raw_os_error()));
            assert_eq!(after, 1 << 9, "the thread has the signal mask that it had");
            let child = Pid::from_raw(seen.into_inner());
            assert_eq!(child.is_some(), is_ours, "{memory:?}");
            assert_ne!(child, Some(getpid()));
        }
    }

    #[test]
    fn signals_are_blocked_in_the_child_until_it_wants_them() {
        let before = AtomicI32::new(0);
        refused_in(ChildMemory::Shared, &|| {
            // TERM, and the two signals of the C library.
            let blocked = set_blocked(u64::MAX);
            before.store(
                i32::from([15, 32, 33].iter().all(|signal| blocked & (1 << (signal - 1)) != 0)),
                Ordering::Relaxed,
            );
            ExecStep::Program.refused(Errno::ACCESS)
        });
        assert_eq!(before.into_inner(), 1);
    }
}
