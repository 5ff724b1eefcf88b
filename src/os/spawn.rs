//! Starts one handler process with its pipes. Supervising it is `child`'s work.

use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{OFlags, fchown, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Gid, Pid, PidfdFlags, Signal, Uid, kill_process_group, pidfd_open, pidfd_send_signal};

use super::adoption::{Origin, Registry, registry};
use super::identity::ProcessIdentity;
use super::pre_exec::{EVENTS_FD, prepare};
use super::proc_files::ignores_signal;
use super::rights::{Prepared, Rights, Step};
use crate::domain::ending::Ending;

/// A program to start. Nothing is inherited: no environment, no descriptor but the four it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildSpec {
    /// Absolute, or a name that is looked up in the PATH of `env`.
    pub program: PathBuf,
    /// Without the program's own name.
    pub args: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// `None` keeps ours.
    pub cwd: Option<PathBuf>,
    /// What it may do and use.
    pub rights: Rights,
    /// The entry `NAME=value` of `env` by which its processes are told from those of other handlers; may be empty.
    pub marker: OsString,
}

/// A started handler that was not reaped yet: as long as this lives and `reap` was not called, its PID and the number
/// of its process group belong to nobody else.
pub(super) struct Handler {
    child: Child,
    pidfd: OwnedFd,
    pub(super) origin: Origin,
}

/// Our ends of its pipes; none of them ever blocks.
pub(super) struct Pipes {
    pub(super) stdin: Input,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    pub(super) events: OwnedFd,
}

/// The pipe to its standard input. We keep the reading end open as well, so that a handler that closes its input can
/// neither fail a write of ours nor send us a SIGPIPE: the pipe is just full then.
pub(super) struct Input {
    pub(super) writer: OwnedFd,
    _reader: OwnedFd,
}

/// The error says how it ended before it began.
pub(super) fn start(spec: &ChildSpec) -> Result<(Handler, Pipes), Ending> {
    let ours = |error: io::Error| Ending::NoRoom(could_not(spec, &error.to_string()));
    prepare_this_process().map_err(ours)?;
    let mut registry = registry();
    let (child, pipes) = spawn(spec, None).map_err(|error| failed(spec, error))?;
    Ok((Handler::adopt(child, spec, &mut registry).map_err(ours)?, pipes))
}

/// Does everything that comes before the exec and asks whether that would be allowed; the error says why it could not
/// start. The program must be an absolute path.
pub(super) fn rehearse(spec: &ChildSpec) -> Result<(), Ending> {
    let ours = |error: io::Error| Ending::NoRoom(could_not(spec, &error.to_string()));
    prepare_this_process().map_err(ours)?;
    let program = c_string(&spec.program).map_err(ours)?;
    let _registry = registry();
    match spawn(spec, Some(program)) {
        Err(error) => match Step::of(error) {
            (Some(Step::Rehearsed), _) => Ok(()),
            (step, error) => Err(failed_at(step, spec, &error)),
        },
        // It never gets so far: the last thing that a rehearsal does is to fail.
        Ok((mut child, _)) => {
            let _ = child.kill();
            let _ = child.wait();
            Ok(())
        }
    }
}

fn failed(spec: &ChildSpec, error: io::Error) -> Ending {
    let (step, error) = Step::of(error);
    failed_at(step, spec, &error)
}

fn failed_at(step: Option<Step>, spec: &ChildSpec, error: &io::Error) -> Ending {
    match step {
        _ if is_want_of_room(error) => Ending::NoRoom(could_not(spec, &error.to_string())),
        Some(Step::Limits) => Ending::Misconfigured(could_not(spec, &format!("its limits were refused: {error}"))),
        Some(Step::User) => Ending::Misconfigured(could_not(spec, &format!("it cannot become its user: {error}"))),
        Some(Step::Directory) => Ending::CouldNotStart(could_not(spec, &explain_directory(spec, error))),
        _ => Ending::CouldNotStart(could_not(spec, &explain(spec, error))),
    }
}

/// Whether the program itself is not to blame.
fn is_want_of_room(error: &io::Error) -> bool {
    let room = [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|number| room.contains(&number))
}

/// Once per process, best before anything else is opened. Descriptor 3 gets an owner for good: a handler's events take
/// its place in the child, where it must not be the pipe on which the standard library waits for the exec. And when
/// SIGCHLD was inherited as ignored, the kernel would reap our children itself and nobody could learn how they ended.
pub(super) fn prepare_this_process() -> io::Result<()> {
    static PLACEHOLDER: Mutex<Option<OwnedFd>> = Mutex::new(None);
    let mut placeholder = PLACEHOLDER.lock().unwrap_or_else(PoisonError::into_inner);
    if placeholder.is_none() {
        if ignores_signal(signal_hook::consts::SIGCHLD)? {
            signal_hook::flag::register(signal_hook::consts::SIGCHLD, Arc::new(AtomicBool::new(false)))?;
        }
        *placeholder = Some(fcntl_dupfd_cloexec(File::open("/dev/null")?, EVENTS_FD)?);
    }
    Ok(())
}

fn spawn(spec: &ChildSpec, rehearsed: Option<CString>) -> io::Result<(Child, Pipes)> {
    let (stdin, input) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stdout, their_stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, their_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    let (events, their_events) = pipe_with(PipeFlags::CLOEXEC)?;
    for ours in [&input, &stdout, &stderr, &events] {
        fcntl_setfl(ours, fcntl_getfl(ours)? | OFlags::NONBLOCK)?;
    }
    if let Some(user) = &spec.rights.credentials {
        // /dev/stdout and /dev/fd/3 are opened anew by whoever writes to them, with the rights of the user.
        for theirs in [&stdin, &their_stdout, &their_stderr, &their_events] {
            fchown(theirs, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))?;
        }
    }
    #[expect(clippy::disallowed_methods, reason = "this is the one place that starts programs, for os::child")]
    let mut command = Command::new(&spec.program);
    command.args(&spec.args).env_clear().envs(spec.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::from(stdin.try_clone()?)).stdout(Stdio::from(their_stdout)).stderr(Stdio::from(their_stderr));
    // The directory is entered by us, not by the standard library, which would do it before the change of user.
    let directory = spec.cwd.as_deref().map(c_string).transpose()?;
    let rights = Prepared::new(&spec.rights, directory, rehearsed);
    // Never 3 itself: copying a descriptor onto itself would leave it marked close-on-exec.
    prepare(&mut command, fcntl_dupfd_cloexec(&their_events, EVENTS_FD + 1)?, rights);
    drop(their_events);
    // The command owns their ends of the pipes; it is dropped here, so that only the handler has them.
    fault_point!("spawn.before");
    let child = command.spawn()?;
    fault_point!("spawn.after");
    Ok((child, Pipes { stdin: Input { writer: input, _reader: stdin }, stdout, stderr, events }))
}

fn c_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "it contains NUL"))
}

impl Handler {
    /// A child that cannot be named or watched is ended at once: nobody could end it later.
    fn adopt(mut child: Child, spec: &ChildSpec, registry: &mut Registry) -> io::Result<Self> {
        let watched = || -> io::Result<(OwnedFd, ProcessIdentity)> {
            let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
            let raw = Pid::from_raw(pid).ok_or_else(|| io::Error::other("the kernel gave no PID"))?;
            let pidfd = pidfd_open(raw, PidfdFlags::empty())?;
            let identity = ProcessIdentity::of_pid(pid)?.ok_or_else(|| io::Error::other("/proc does not show it"))?;
            Ok((pidfd, identity))
        };
        match watched() {
            Ok((pidfd, handler)) => {
                registry.add(handler.pid);
                let marker = spec.marker.as_encoded_bytes().to_vec();
                let origin = Origin { handler, marker, no_new_privileges: spec.rights.no_new_privileges };
                Ok(Self { child, pidfd, origin })
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Its main process.
    pub(super) fn identity(&self) -> &ProcessIdentity {
        &self.origin.handler
    }

    /// Signals its whole process group, which it cannot leave, being the leader of its session. Only for a handler that
    /// was not reaped: the number is still its own.
    pub(super) fn signal_group(&self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.identity().pid) else { return };
        if kill_process_group(pid, signal).is_err() {
            let _ = pidfd_send_signal(&self.pidfd, signal);
        }
    }

    /// Gives its PID back to the kernel; it must have ended.
    pub(super) fn reap(mut self) {
        let mut registry = registry();
        let _ = self.child.wait();
        registry.remove(self.identity().pid);
    }
}

impl AsFd for Handler {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

fn could_not(spec: &ChildSpec, why: &str) -> String {
    format!("could not start {}: {why}", spec.program.display())
}

/// Why the working directory cannot be entered.
fn explain_directory(spec: &ChildSpec, error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::NotFound => "does not exist".to_owned(),
        io::ErrorKind::NotADirectory => "is not a directory".to_owned(),
        io::ErrorKind::PermissionDenied => "may not be entered by its user".to_owned(),
        _ => format!("cannot be entered: {error}"),
    };
    format!("the working directory {} {why}", spec.cwd.as_deref().unwrap_or(Path::new(".")).display())
}

/// The kernel's error alone does not say whether the program or its interpreter is meant.
fn explain(spec: &ChildSpec, error: &io::Error) -> String {
    let has_path = spec.program.as_os_str().as_encoded_bytes().contains(&b'/');
    match error.kind() {
        io::ErrorKind::NotFound if !has_path => "no such program in PATH".to_owned(),
        io::ErrorKind::NotFound if at_cwd(spec).exists() => {
            "it exists, but the interpreter it names in its first line does not".to_owned()
        }
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => match fs::metadata(at_cwd(spec)) {
            Ok(file) if file.is_dir() => "it is a directory".to_owned(),
            Ok(file) if file.permissions().mode() & 0o111 == 0 => "it is not executable (chmod +x)".to_owned(),
            _ => "no permission to execute it".to_owned(),
        },
        _ if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
            "it is not in a format the kernel can run".to_owned()
        }
        _ => error.to_string(),
    }
}

/// A relative program with a slash is looked up in the handler's working directory.
fn at_cwd(spec: &ChildSpec) -> std::path::PathBuf {
    spec.cwd.as_deref().unwrap_or_else(|| Path::new(".")).join(&spec.program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn want_of_room_is_told_from_a_program_that_cannot_run() {
        for (errno, is_room) in [
            (Errno::AGAIN, true),
            (Errno::NOMEM, true),
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::NOENT, false),
            (Errno::ACCESS, false),
            (Errno::NOEXEC, false),
            (Errno::TOOBIG, false),
        ] {
            assert_eq!(is_want_of_room(&io::Error::from(errno)), is_room, "{errno}");
        }
    }
}
