//! What a handler's process does before it executes its program.
//!
//! It may share memory with the runner: only async-signal-safe calls are allowed, no allocation, no lock, no printing, no panic.

use std::ffi::{CStr, c_char, c_int, c_long};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::process::{Pid, Resource, Signal, getpid, getppid, getrlimit, set_parent_process_death_signal, setsid};

use super::image::Image;
use super::rights::{ExecStep, PreparedRights, Refusal, RightsFailure};
use super::vfork::{self, ChildMemory, KERNEL_SET_BYTES, Process, set_blocked};

/// The descriptor to which a handler writes its events.
pub(crate) const EVENTS_FD: c_int = 3;
/// The descriptor from which it reads why it must end.
pub(crate) const STOP_REASON_FD: c_int = 4;

/// The most descriptors that are marked one by one, even if the limit is higher.
const MOST_DESCRIPTORS: u64 = 65_536;
const LAST_SIGNAL: c_int = 64;
/// No architecture's `struct sigaction` is larger; all zeros are the default action.
const DEFAULT_ACTION: [u64; 8] = [0; 8];

/// The properties of a new process.
pub(crate) struct ExecPlan<'a> {
    pub(crate) image: &'a Image,
    pub(crate) rights: &'a PreparedRights,
    /// Its descriptors 0 to 4; each has a higher number in this process.
    pub(crate) descriptors: [BorrowedFd<'a>; 5],
}

impl ExecPlan<'_> {
    /// Starts a process that executes the program. It leads its own session, has default signals, only these five descriptors and
    /// these rights, and dies with this thread. The error is the reason why it could not be executed.
    pub(crate) fn start(&self) -> Result<Process, RightsFailure> {
        let runner = getpid();
        #[cfg(feature = "fault-points")]
        let fault = taskqueue_host::fault::planned("spawn.forked");
        let in_child = || {
            #[cfg(feature = "fault-points")]
            if let Some(signal) = fault {
                let _ = rustix::process::kill_process(runner, signal);
            }
            self.prepare(runner).err().unwrap_or_else(|| self.execute())
        };
        let memory = if self.rights.changes_user() { ChildMemory::Copied } else { ChildMemory::Shared };
        #[expect(unsafe_code, reason = "the only way to run code in a new process")]
        // SAFETY: it makes plain system calls on values that were prepared before; it neither allocates nor locks nor panics, and
        // it changes only the first argument, which is not read afterwards.
        unsafe {
            vfork::start(memory, &in_child)
        }
    }

    fn prepare(&self, runner: Pid) -> Result<(), Refusal> {
        reset_signals();
        mark_descriptors();
        for (number, descriptor) in (0..).zip(self.descriptors) {
            take_descriptor(descriptor, number)?;
        }
        // A process can leave its group, but leave its session only for a new one: descendants of this handler are never in the
        // session of this process.
        setsid().map_err(|errno| ExecStep::Supervision.refused(errno))?;
        self.rights.apply()?;
        // Last, because the kernel resets it when the user changes. It covers only a death after the call, so the parent is
        // checked afterwards.
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(|errno| ExecStep::Supervision.refused(errno))?;
        if getppid() != Some(runner) {
            return Err(ExecStep::Supervision.refused(Errno::SRCH));
        }
        self.rights.rehearsal_result().map_or(Ok(()), Err)
    }

    /// Tries the candidates as execvp(3) does; returns why none could be executed.
    fn execute(&self) -> Refusal {
        // Blocked signals would be inherited. A signal received meanwhile goes to the handler.
        set_blocked(0);
        let mut last = Errno::NOENT;
        for candidate in &self.image.candidates {
            let errno = execve(candidate, self.image.arguments(), self.image);
            match errno {
                Errno::NOEXEC => {
                    let (shell, arguments) = self.image.arguments_of_shell(candidate);
                    return ExecStep::Execution.refused(execve(shell, arguments, self.image));
                }
                Errno::ACCESS => last = errno,
                Errno::NOENT | Errno::NOTDIR | Errno::STALE | Errno::NODEV | Errno::TIMEDOUT => {
                    // A program that exists but may not be executed is a better explanation than a missing one.
                    if last != Errno::ACCESS {
                        last = errno;
                    }
                }
                errno => return ExecStep::Execution.refused(errno),
            }
        }
        ExecStep::Execution.refused(last)
    }
}

/// Resets ignored signals, which would be inherited: SIGPIPE, which Rust ignores, or SIGHUP and SIGINT of a runner started by
/// nohup or by a shell in the background. Also, no signal handler of this program may run in the child once signals are
/// unblocked.
fn reset_signals() {
    for number in 1..=LAST_SIGNAL {
        #[expect(unsafe_code, reason = "a system call for which rustix has no stable safe form")]
        // SAFETY: it reads one live action, and the table that it changes is the child's own. It fails for KILL and STOP.
        unsafe {
            let (action, old) = (DEFAULT_ACTION.as_ptr(), ptr::null_mut::<u64>());
            libc::syscall(libc::SYS_rt_sigaction, c_long::from(number), action, old, KERNEL_SET_BYTES);
        }
    }
}

/// Marks descriptors close-on-exec: some database clients leave sockets unmarked, and this process may have inherited unmarked
/// ones.
fn mark_descriptors() {
    let first = STOP_REASON_FD + 1;
    #[expect(unsafe_code, reason = "system calls for which rustix has no safe form")]
    // SAFETY: all arguments are numbers, and the table of descriptors is the child's own.
    unsafe {
        let how = c_long::from(libc::CLOSE_RANGE_CLOEXEC);
        if libc::syscall(libc::SYS_close_range, c_long::from(first), c_long::from(u32::MAX), how) == 0 {
            return;
        }
        // Missing in kernels before 5.11.
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).min(MOST_DESCRIPTORS);
        for number in first..c_int::try_from(most).unwrap_or(c_int::MAX) {
            libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}

/// Duplicates the descriptor to this number, without close-on-exec.
fn take_descriptor(descriptor: BorrowedFd<'_>, number: c_int) -> Result<(), Refusal> {
    #[expect(unsafe_code, reason = "rustix would take the number for a descriptor that other code owns")]
    // SAFETY: both are numbers, and the table of descriptors is the child's own.
    let done = unsafe { libc::dup2(descriptor.as_raw_fd(), number) };
    if done == number { Ok(()) } else { Err(ExecStep::Supervision.refused(last_errno())) }
}

/// Returns only on failure.
fn execve(file: &CStr, arguments: *const *const c_char, image: &Image) -> Errno {
    #[expect(unsafe_code, reason = "the execution of a program, for which rustix has no stable form")]
    // SAFETY: two arrays of C strings, each with its end, that the image keeps.
    unsafe {
        libc::execve(file.as_ptr(), arguments, image.environment());
    }
    last_errno()
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
