//! Starts one handler process with its pipes. `child` supervises it.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt as _, PermissionsExt};
use std::path::{Path, PathBuf, absolute};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{MemfdFlags, OFlags, fchown, fcntl_setfl, memfd_create};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Gid, Signal, Uid, kill_process_group, pidfd_send_signal};

use super::ignored_signals::ignores_signal;
use super::image::{Image, candidates};
use super::pre_exec::{ExecPlan, STOP_REASON_FD};
use super::rights::{ExecStep, PreparedRights, Rights, RightsFailure};
use super::vfork::Process;
use crate::identities::adoption::{ProcessOrigin, ask_orphans_to_end, registry, starting};
use crate::identities::identity::ProcessIdentity;
use taskqueue_domain::limits::confinement::Limits;
use taskqueue_domain::run::ending::Ending;
use taskqueue_domain::run::stop_reason::StopReason;
use taskqueue_host::clock::Moment;

/// A program to start. Nothing is inherited: no environment, and only five descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildSpec {
    /// An absolute path, or a name that is looked up in the PATH of `env`.
    pub program: PathBuf,
    /// The arguments without the program's name.
    pub args: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// The working directory; `None` keeps that of this process.
    pub cwd: Option<PathBuf>,
    /// Its rights and limits.
    pub rights: Rights,
    /// The entry `NAME=value` of `env` that distinguishes its processes from those of other handlers; may be empty.
    pub marker: OsString,
}

impl ChildSpec {
    /// Returns the absolute paths of the files that its start tries to execute, in this order: several for a name that is looked
    /// up in PATH.
    #[must_use]
    pub fn program_files(&self) -> Vec<PathBuf> {
        // A name with NUL makes the start fail.
        let names = candidates(self.program.as_os_str(), &self.env).unwrap_or_default();
        let files = names.iter().map(|name| at_cwd(self, Path::new(OsStr::from_bytes(name.to_bytes()))));
        files.map(|file| absolute(&file).unwrap_or(file)).collect()
    }
}

/// A started handler that was not reaped: until `reap` is called, its PID and the number of its process group are not reused.
pub(crate) struct HandlerProcess {
    process: Process,
    pub(crate) origin: ProcessOrigin,
    /// A file in memory that the handler has too.
    stop_reason: File,
}

/// This process's ends of the pipes; they never block.
pub(crate) struct Pipes {
    pub(crate) stdin: Input,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    pub(crate) events: OwnedFd,
}

/// The pipe to its standard input. This process also keeps the reading end open: if the handler closes its input, writes do not
/// fail or raise SIGPIPE; the pipe just fills up.
pub(crate) struct Input {
    pub(crate) writer: OwnedFd,
    reader: OwnedFd,
}

/// The handler's ends of its pipes, except the reading end of its input. None has a number that it will have in the handler:
/// there, they would overwrite each other.
struct Theirs {
    stdout: OwnedFd,
    stderr: OwnedFd,
    events: OwnedFd,
    stop_reason: OwnedFd,
}

/// Starts the handler. The error is its ending, if it could not be started.
pub(crate) fn start(spec: &ChildSpec) -> Result<(HandlerProcess, Pipes), Ending> {
    let ours = |error: io::Error| failed_here(spec, &error);
    prepare_process().map_err(ours)?;
    let (before, process, pipes) = {
        let _starting = starting();
        let before = Moment::now();
        let started = spawn(spec, None).map_err(|failure| failed(spec, &failure))?;
        registry().add(started.process.pid.as_raw_nonzero().get());
        (before, started.process, (started.pipes, started.stop_reason))
    };
    let (pipes, stop_reason) = pipes;
    Ok((HandlerProcess::adopt(process, spec, before, stop_reason).map_err(ours)?, pipes))
}

/// Checks whether the program could be started now: performs all steps before the exec, and checks whether the exec would be
/// allowed. The program must be an absolute path.
///
/// # Errors
/// Why it could not be started, as its start would report it.
pub fn rehearse(spec: &ChildSpec) -> Result<(), Ending> {
    let ours = |error: io::Error| failed_here(spec, &error);
    prepare_process().map_err(ours)?;
    let program = c_string(&spec.program).map_err(ours)?;
    let _starting = starting();
    match spawn(spec, Some(program)) {
        Err(RightsFailure { step: Some(ExecStep::Rehearsed), .. }) => Ok(()),
        Err(failure) => Err(failed(spec, &failure)),
        // Not reached: a rehearsal always ends with a failure.
        Ok(started) => {
            started.process.end();
            Ok(())
        }
    }
}

/// Returns the ending if this process lacks something that starting any handler needs.
fn failed_here(spec: &ChildSpec, error: &io::Error) -> Ending {
    let text = could_not(spec, &error.to_string());
    if is_lack_of_resources(error) { Ending::NoRoom(text) } else { Ending::Misconfigured(text) }
}

fn failed(spec: &ChildSpec, RightsFailure { step, error }: &RightsFailure) -> Ending {
    let limits = &spec.rights.limits;
    match step {
        Some(ExecStep::Execution) if is_below_need(limits, error) => {
            let why = format!("its limits are too low to start it: {error}");
            Ending::Misconfigured(could_not(spec, &why))
        }
        _ if is_lack_of_resources(error) => Ending::NoRoom(could_not(spec, &error.to_string())),
        Some(ExecStep::Limits) => Ending::Misconfigured(could_not(spec, &format!("its limits were refused: {error}"))),
        Some(ExecStep::User) => Ending::Misconfigured(could_not(spec, &format!("it cannot become its user: {error}"))),
        Some(ExecStep::Directory) => Ending::CouldNotStart(could_not(spec, &explain_directory(spec, error))),
        _ => Ending::CouldNotStart(could_not(spec, &explain(spec, error))),
    }
}

/// Returns true if the start failed because of a limit of the class, which applies on every runner.
fn is_below_need(limits: &Limits, error: &io::Error) -> bool {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::AGAIN) => limits.processes.is_some(),
        Some(Errno::NOMEM) => limits.memory_bytes.is_some(),
        _ => false,
    }
}

/// Returns true if this process or this machine lacked resources, so that neither the program nor its class is at fault.
#[must_use]
pub fn is_lack_of_resources(error: &io::Error) -> bool {
    let room = [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|number| room.contains(&number))
}

/// Prepares this process for starting handlers, once; best called first, and each start calls it too. If SIGCHLD was inherited as
/// ignored, the kernel would reap children itself and their endings would be lost.
///
/// # Errors
/// The kernel refused to tell or to change how SIGCHLD is received.
pub fn prepare_process() -> io::Result<()> {
    static PREPARED: Mutex<bool> = Mutex::new(false);
    let mut prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*prepared {
        if ignores_signal(signal_hook::consts::SIGCHLD)? {
            signal_hook::flag::register(signal_hook::consts::SIGCHLD, Arc::new(AtomicBool::new(false)))?;
        }
        *prepared = true;
    }
    Ok(())
}

/// A process and this side's ends of its pipes.
struct StartedProcess {
    process: Process,
    pipes: Pipes,
    stop_reason: File,
}

fn spawn(spec: &ChildSpec, rehearsed: Option<CString>) -> Result<StartedProcess, RightsFailure> {
    let image = Image::new(&spec.program, &spec.args, &spec.env)?;
    let directory = spec.cwd.as_deref().map(c_string).transpose()?;
    let rights = PreparedRights::new(&spec.rights, directory, rehearsed);
    let stop_reason = file_in_memory()?;
    let (pipes, theirs) = pipes(&stop_reason)?;
    let descriptors = [
        pipes.stdin.reader.as_fd(),
        theirs.stdout.as_fd(),
        theirs.stderr.as_fd(),
        theirs.events.as_fd(),
        theirs.stop_reason.as_fd(),
    ];
    if let Some(user) = &spec.rights.credentials {
        // Processes that write to /dev/stdout or /dev/fd/3 open it again, with the rights of the user.
        for theirs in descriptors {
            fchown(theirs, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))?;
        }
    }
    fault_point!("spawn.before");
    let process = ExecPlan { image: &image, rights: &rights, descriptors }.start()?;
    rights.set_oom_score_of(process.pid.as_raw_nonzero().get());
    fault_point!("spawn.after");
    // The handler's ends are dropped here, so that only the handler has them.
    Ok(StartedProcess { process, pipes, stop_reason })
}

/// Returns an anonymous file: it disappears with its last descriptor, and other users cannot open it.
fn file_in_memory() -> io::Result<File> {
    let create = |flags| memfd_create(c"taskqueue-stop-reason", flags);
    // Kernels before 6.3 do not know NOEXEC_SEAL; some later ones require it.
    let file = match create(MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => create(MemfdFlags::CLOEXEC),
        created => created,
    };
    Ok(file?.into())
}

/// Returns both ends of each pipe, close-on-exec; this process's ends do not block.
fn pipes(stop_reason: &File) -> io::Result<(Pipes, Theirs)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stdout, their_stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, their_stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    let (events, their_events) = pipe_with(PipeFlags::CLOEXEC)?;
    for ours in [&writer, &stdout, &stderr, &events] {
        // A new pipe has no other flags.
        fcntl_setfl(ours, OFlags::NONBLOCK)?;
    }
    let stdin = Input { writer, reader: out_of_the_way(reader)? };
    let theirs = Theirs {
        stdout: out_of_the_way(their_stdout)?,
        stderr: out_of_the_way(their_stderr)?,
        events: out_of_the_way(their_events)?,
        stop_reason: fcntl_dupfd_cloexec(stop_reason, STOP_REASON_FD + 1)?,
    };
    Ok((Pipes { stdin, stdout, stderr, events }, theirs))
}

fn out_of_the_way(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    if descriptor.as_raw_fd() > STOP_REASON_FD {
        return Ok(descriptor);
    }
    Ok(fcntl_dupfd_cloexec(descriptor, STOP_REASON_FD + 1)?)
}

fn c_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "it contains NUL"))
}

impl HandlerProcess {
    /// Identifies the child. A child that cannot be identified is ended at once, because it could not be ended later.
    fn adopt(process: Process, spec: &ChildSpec, before: Moment, stop_reason: File) -> io::Result<Self> {
        let pid = process.pid.as_raw_nonzero().get();
        let named = ProcessIdentity::of_child(pid, before, Moment::now())
            .and_then(|identity| identity.ok_or_else(|| io::Error::other("/proc does not show it")));
        match named {
            Ok(handler) => {
                let marker = spec.marker.as_encoded_bytes().to_vec();
                let origin = ProcessOrigin { handler, marker, no_new_privileges: spec.rights.no_new_privileges };
                Ok(Self { process, origin, stop_reason })
            }
            Err(error) => {
                let mut registry = registry();
                process.end();
                registry.remove(pid);
                Err(error)
            }
        }
    }

    /// Returns the identity of its main process.
    pub(crate) fn identity(&self) -> &ProcessIdentity {
        &self.origin.handler
    }

    /// Signals its whole process group, which it cannot leave because it leads its session. Only for an unreaped handler:
    /// otherwise the number may be reused.
    pub(crate) fn signal_group(&self, signal: Signal) {
        if kill_process_group(self.process.pid, signal).is_err() {
            let _ = pidfd_send_signal(&self.process.pidfd, signal);
        }
    }

    /// Asks it and its descendants to end: TERM, with the reason on descriptor 4 before it.
    pub(crate) fn ask_to_end(&self, reason: Option<StopReason>) {
        if let Some(reason) = reason {
            // At offset 0, where the handler reads. If the write fails, TERM is sent all the same.
            let _ = self.stop_reason.write_all_at(format!("{reason}\n").as_bytes(), 0);
        }
        self.signal_group(Signal::TERM);
        // A stopped process would not handle the TERM.
        self.signal_group(Signal::CONT);
        ask_orphans_to_end(&self.origin);
    }

    /// Reaps it; it must have ended.
    pub(crate) fn reap(self) {
        let mut registry = registry();
        self.process.reap();
        registry.remove(self.origin.handler.pid);
    }
}

impl AsFd for HandlerProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.pidfd.as_fd()
    }
}

fn could_not(spec: &ChildSpec, why: &str) -> String {
    format!("could not start {}: {why}", spec.program.display())
}

/// Explains why the working directory cannot be entered.
fn explain_directory(spec: &ChildSpec, error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::NotFound => "does not exist".to_owned(),
        io::ErrorKind::NotADirectory => "is not a directory".to_owned(),
        io::ErrorKind::PermissionDenied => "may not be entered by its user".to_owned(),
        _ => format!("cannot be entered: {error}"),
    };
    format!("the working directory {} {why}", spec.cwd.as_deref().unwrap_or(Path::new(".")).display())
}

/// Explains a failed exec: the kernel's error alone does not show whether the program or its interpreter is meant.
fn explain(spec: &ChildSpec, error: &io::Error) -> String {
    let has_path = spec.program.as_os_str().as_encoded_bytes().contains(&b'/');
    match error.kind() {
        io::ErrorKind::NotFound if !has_path => "no such program in PATH".to_owned(),
        io::ErrorKind::NotFound if at_cwd(spec, &spec.program).exists() => {
            "it exists, but the interpreter it names in its first line does not".to_owned()
        }
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => match fs::metadata(at_cwd(spec, &spec.program)) {
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

/// Returns the path of a program; a relative one is relative to the handler's working directory.
fn at_cwd(spec: &ChildSpec, program: &Path) -> PathBuf {
    spec.cwd.as_deref().unwrap_or_else(|| Path::new(".")).join(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_resources_differs_from_a_program_that_cannot_run() {
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
            assert_eq!(is_lack_of_resources(&io::Error::from(errno)), is_room, "{errno}");
        }
    }

    #[test]
    fn the_files_of_a_program_are_those_that_its_start_tries() {
        let files = |program: &str, cwd: &str| {
            let env = vec![("PATH".into(), "/a::sub".into())];
            let rights = Rights { credentials: None, limits: Limits::default(), umask: 0o077, no_new_privileges: true };
            let cwd = Some(cwd.into());
            let spec =
                ChildSpec { program: program.into(), args: Vec::new(), env, cwd, rights, marker: OsString::new() };
            spec.program_files()
        };
        let expected = |files: &[&str]| files.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(files("tool", "/w"), expected(&["/a/tool", "/w/tool", "/w/sub/tool"]));
        assert_eq!(files("./tool", "/w"), expected(&["/w/tool"]));
        assert_eq!(files("/b/tool", "/w"), expected(&["/b/tool"]));
        assert!(files("tool", "here").iter().all(|file| file.is_absolute()));
        assert_eq!(files("a\0b", "/w"), expected(&[]));
    }

    #[test]
    fn a_limit_of_the_class_is_told_from_a_shortage_of_the_runner() {
        let (processes, memory) =
            (Limits { processes: Some(1), ..Limits::default() }, Limits { memory_bytes: Some(1), ..Limits::default() });
        for (limits, errno, is_of_class) in [
            (Limits::default(), Errno::AGAIN, false),
            (Limits::default(), Errno::NOMEM, false),
            (processes, Errno::AGAIN, true),
            (processes, Errno::NOMEM, false),
            (memory, Errno::NOMEM, true),
            (memory, Errno::NFILE, false),
        ] {
            assert_eq!(is_below_need(&limits, &io::Error::from(errno)), is_of_class, "{errno} {limits:?}");
        }
    }
}
