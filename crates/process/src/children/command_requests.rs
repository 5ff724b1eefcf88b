//! Executes commands of this program for handlers that request them over the event socket.
//!
//! The process inside the handler keeps its descriptors and waits. The command runs as a child of the runner, with the runner's
//! user, environment and database, and uses the descriptors of the requesting process. So a handler that runs as another user
//! needs no password. The command gets the address of the database over a socket, because a handler of the same user could read
//! it in its environment. The parser of the command line checks what the command may do.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open, pidfd_send_signal, set_parent_process_death_signal,
};

use super::address_handover::{AddressHandover, DATABASE_VARIABLE};
use taskqueue_domain::task::trace::{CORRELATION_VARIABLE, TRACEPARENT_VARIABLE, Trace};
use taskqueue_host::clock::{Moment, poll_wait};

/// The variable with the token of the run for which a command is executed.
const ON_BEHALF_VARIABLE: &str = "TASKQUEUE_ON_BEHALF_OF";
/// The variable with the PID of the process that started it.
const PARENT_VARIABLE: &str = "TASKQUEUE_RUNNER_PID";
/// The variables of a handler, which its commands must not inherit.
const OF_HANDLERS: [&str; 3] = ["TASKQUEUE_RUN_TOKEN", "TASKQUEUE_EVENTS_TOKEN", "TASKQUEUE_EVENTS_SOCKET"];
/// The maximum number of simultaneous commands of all handlers of this runner.
const AT_ONCE: usize = 32;
/// The time between TERM and KILL for a command whose requester has ended.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// A command line that a handler requested.
#[derive(Debug)]
pub(crate) struct Request {
    /// The arguments without the name of the program.
    pub(crate) arguments: Vec<String>,
    /// The trace context and the correlation id in the environment of the requester.
    pub(crate) trace: Trace,
    /// Its standard input, output and error.
    pub(crate) stdio: [OwnedFd; 3],
    /// The socket to which its exit status is sent; hangs up when the requester ends.
    pub(crate) answer: OwnedFd,
}

/// Executes the commands of handlers.
pub struct CommandRequests {
    address: OsString,
    environment: Vec<(&'static str, OsString)>,
    running: AtomicUsize,
}

/// Without the address, which may contain a password.
impl fmt::Debug for CommandRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandRequests").finish_non_exhaustive()
    }
}

impl CommandRequests {
    /// Executes commands with the program of this process, for the database with this address, and with these variables in
    /// addition to its own.
    #[must_use]
    pub const fn new(address: OsString, environment: Vec<(&'static str, OsString)>) -> Self {
        Self { address, environment, running: AtomicUsize::new(0) }
    }

    /// Starts a command in the background, for the run with this token.
    pub(crate) fn serve(self: &Arc<Self>, request: Request, token: &str) {
        let Some(place) = RequestSlot::take(self) else {
            return reply(&request.answer, &format!("{AT_ONCE} commands of handlers are running already"));
        };
        let requests = Arc::clone(self);
        let command = self.command(&request, token);
        let serve = move || {
            let Request { stdio, answer, .. } = request;
            match requests.execute(command, stdio, &answer) {
                Ok(status) => reply(&answer, &code_of(status).to_string()),
                Err(error) => reply(&answer, &format!("the command could not be started: {error}")),
            }
            drop(place);
        };
        // If the thread cannot be started, the descriptors are dropped and the requester reads end of file.
        let _ = std::thread::Builder::new().name("command".to_owned()).spawn(serve);
    }

    /// Executes the command until it ends, or until its requester does.
    fn execute(&self, mut command: Command, stdio: [OwnedFd; 3], answer: &OwnedFd) -> io::Result<ExitStatus> {
        let [stdin, stdout, stderr] = stdio;
        let (handover, instead_of_stdin) = AddressHandover::instead_of(stdin)?;
        let child = command.stdin(instead_of_stdin).stdout(stdout).stderr(stderr).spawn()?;
        // It holds copies of the descriptors, and the requester waits until they are closed.
        drop(command);
        wait_for(child, answer, handover, self.address.as_bytes())
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "no handler: a command of this program, with the descriptors of another process"
    )]
    fn command(&self, request: &Request, token: &str) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.args(&request.arguments).env(ON_BEHALF_VARIABLE, OsStr::new(token));
        command.env(PARENT_VARIABLE, getpid().as_raw_nonzero().to_string());
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        for name in OF_HANDLERS.into_iter().chain([DATABASE_VARIABLE]) {
            command.env_remove(name);
        }
        // Those of the runner are not those of the handler.
        for name in [TRACEPARENT_VARIABLE, CORRELATION_VARIABLE] {
            command.env_remove(name);
        }
        command.envs(request.trace.variables());
        command
    }
}

/// A slot for one of the simultaneous commands.
struct RequestSlot(Arc<CommandRequests>);

impl RequestSlot {
    fn take(requests: &Arc<CommandRequests>) -> Option<Self> {
        let add = |running: usize| (running < AT_ONCE).then_some(running + 1);
        let taken = requests.running.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        taken.ok().map(|_| Self(Arc::clone(requests)))
    }
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Sends the requester the exit status of the command, or why it was not executed. Errors are ignored: the requester may have
/// ended.
pub(crate) fn reply(answer: &OwnedFd, text: &str) {
    let _ = send(answer, text.as_bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Waits for the command, answers its question for the address, and ends it if its requester has ended.
fn wait_for(mut child: Child, answer: &OwnedFd, handover: AddressHandover, address: &[u8]) -> io::Result<ExitStatus> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let Some(pid) = pid else { return child.wait() };
    // It was not reaped yet, so its PID was not reused.
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let mut handover = Some(handover);
    let mut kill_at: Option<Moment> = None;
    loop {
        let mut fds = vec![PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
        // A hang-up is always reported, whatever events are requested.
        let gone = kill_at.is_none().then(|| PollFd::from_borrowed_fd(answer.as_fd(), PollFlags::empty()));
        let asked = handover.as_ref().map(|handover| PollFd::from_borrowed_fd(handover.as_fd(), PollFlags::IN));
        fds.extend(gone.into_iter().chain(asked));
        let wait = kill_at.map(|at| poll_wait(at.remaining()));
        match poll(&mut fds, wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut has_event = fds.iter().map(|fd| !fd.revents().is_empty());
        let has_ended = has_event.next() == Some(true);
        let is_gone = kill_at.is_none() && has_event.next() == Some(true);
        let has_asked = handover.is_some() && has_event.next() == Some(true);
        if has_ended {
            return child.wait();
        }
        if let Some(handover) = handover.take_if(|_| has_asked) {
            handover.answer(address);
        }
        match kill_at {
            None if is_gone => {
                let _ = pidfd_send_signal(&process, Signal::TERM);
                kill_at = Some(Moment::after(KILL_GRACE));
            }
            Some(at) if at.has_passed() => {
                let _ = pidfd_send_signal(&process, Signal::KILL);
                return child.wait();
            }
            _ => {}
        }
    }
}

/// Makes the kernel end this process when the parent's thread that started it ends.
///
/// # Errors
/// The kernel refuses, or the parent has already ended.
pub fn end_with_parent(parent: &str) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // The parent may have ended before the call.
    let is_there = getppid().is_some_and(|pid| pid.as_raw_nonzero().to_string() == parent);
    if is_there { Ok(()) } else { Err(io::Error::other("the runner has ended")) }
}

/// Returns the exit code as a shell reports it.
fn code_of(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_in_no_argument_and_no_variable_of_a_command() {
        let null = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let request = Request {
            arguments: vec!["status".to_owned()],
            trace: Trace::default(),
            stdio: [null(), null(), null()],
            answer: null(),
        };
        let config = vec![("TASKQUEUE_CONFIG", OsString::from("/etc/config.toml"))];
        let command = CommandRequests::new("postgres://ann:secret@host/db".into(), config).command(&request, "token");
        assert!(!format!("{command:?}").contains("secret"), "{command:?}");
        let is_removed = |(name, value): (&OsStr, Option<&OsStr>)| name == DATABASE_VARIABLE && value.is_none();
        assert!(command.get_envs().any(is_removed), "what the runner has is not inherited");
    }

    #[test]
    fn no_more_commands_run_at_once_than_the_limit() {
        let requests = Arc::new(CommandRequests::new(OsString::new(), Vec::new()));
        let mut running: Vec<RequestSlot> = (0..AT_ONCE).map(|_| RequestSlot::take(&requests).unwrap()).collect();
        assert!(RequestSlot::take(&requests).is_none());
        running.pop();
        assert!(RequestSlot::take(&requests).is_some());
    }
}
