//! Restrictions that a handler's process applies before it executes its program: limits, another user, no new privileges.
//!
//! Everything is prepared before the process exists; the process makes only plain system calls, which neither allocate nor lock.
//! A failed call is reported with its step, because the error number alone is ambiguous.

use std::ffi::CString;
use std::io;
use std::time::Duration;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat, open};
use rustix::io::{Errno, write};
use rustix::process::{
    Gid, Resource, Rlimit, Uid, chdir, getegid, geteuid, getgid, getrlimit, getuid, setrlimit, umask,
};
use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use taskqueue_domain::limits::confinement::Limits;
use taskqueue_host::machine::account::Credentials;
use taskqueue_host::machine::descriptors::limits_of_handlers;
use taskqueue_host::recent::Recent;

/// How much later the kernel kills a handler that continues after SIGXCPU.
const CPU_GRACE_SECS: u64 = 5;
/// How much higher than the runner's the OOM score of a handler is, so that the kernel kills the handler first.
const OOM_DISTANCE: i32 = 500;
const HIGHEST_OOM_SCORE: i32 = 1000;
/// How often setting the OOM score is tried. A program that its user may not read stays hidden and keeps the runner's score.
const OOM_SCORE_TRIES: u32 = 20;
const OOM_SCORE_PAUSE: Duration = Duration::from_micros(500);

/// The rights and limits of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// The user it becomes; `None` keeps the user of this process.
    pub credentials: Option<Credentials>,
    /// Its resource limits.
    pub limits: Limits,
    /// The mode bits that are removed from new files.
    pub umask: u32,
    /// Whether no program that it executes can gain rights.
    pub no_new_privileges: bool,
}

/// The step of the child that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExecStep {
    /// Its descriptors, its session, its death with the runner.
    Supervision,
    /// The limits.
    Limits,
    /// Another user.
    User,
    /// The working directory.
    Directory,
    /// The permission to execute the program; only in a rehearsal.
    Program,
    /// Nothing failed: the end of a rehearsal.
    Rehearsed,
    /// The execution of the program.
    Execution,
}

/// Why a child did not execute its program, left in memory that it shares with this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    step: ExecStep,
    errno: Errno,
}

impl ExecStep {
    /// Returns an error of this step.
    pub(crate) fn refused(self, errno: Errno) -> Refusal {
        Refusal { step: self, errno }
    }
}

/// Why the child could not be started.
#[derive(Debug)]
pub(crate) struct RightsFailure {
    /// `None` if no process was created.
    pub(crate) step: Option<ExecStep>,
    pub(crate) error: io::Error,
}

impl From<Refusal> for RightsFailure {
    fn from(refusal: Refusal) -> Self {
        Self { step: Some(refusal.step), error: refusal.errno.into() }
    }
}

impl From<io::Error> for RightsFailure {
    fn from(error: io::Error) -> Self {
        Self { step: None, error }
    }
}

impl From<Errno> for RightsFailure {
    fn from(errno: Errno) -> Self {
        Self { step: None, error: errno.into() }
    }
}

/// The rights, prepared for the child.
pub(crate) struct PreparedRights {
    groups: Vec<Gid>,
    ids: Option<(Uid, Gid)>,
    limits: Vec<(Resource, u64, u64)>,
    umask: Mode,
    no_new_privileges: bool,
    oom_score: Option<Vec<u8>>,
    directory: Option<CString>,
    /// The program for which only the permission to execute is checked.
    rehearsed: Option<CString>,
}

impl PreparedRights {
    pub(crate) fn new(rights: &Rights, directory: Option<CString>, rehearsed: Option<CString>) -> Self {
        let credentials = rights.credentials.as_ref();
        Self {
            groups: credentials
                .map(|user| user.groups.iter().copied().map(Gid::from_raw).collect())
                .unwrap_or_default(),
            ids: credentials.map(|user| (Uid::from_raw(user.uid), Gid::from_raw(user.gid))),
            limits: resources(&rights.limits, limits_of_handlers()),
            umask: Mode::from_raw_mode(rights.umask),
            no_new_privileges: rights.no_new_privileges,
            oom_score: oom_score(),
            directory,
            rehearsed,
        }
    }

    /// Returns true if it becomes another user.
    pub(crate) fn changes_user(&self) -> bool {
        self.ids.is_some()
    }

    /// Applies the rights. Called in the child.
    pub(crate) fn apply(&self) -> Result<(), Refusal> {
        // Before the change of user, after which the file is not writable. Errors are ignored: the kernel then chooses the
        // process to kill by its own rules.
        if let Some(score) = &self.oom_score
            && let Ok(file) = open(c"/proc/self/oom_score_adj", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
        {
            let _ = write(&file, score);
        }
        for (resource, soft, hard) in &self.limits {
            set_limit(*resource, *soft, *hard).map_err(|errno| ExecStep::Limits.refused(errno))?;
        }
        umask(self.umask);
        self.change_user().map_err(|errno| ExecStep::User.refused(errno))?;
        if self.no_new_privileges {
            set_no_new_privs(true).map_err(|errno| ExecStep::User.refused(errno))?;
        }
        if let Some(directory) = &self.directory {
            chdir(directory.as_c_str()).map_err(|errno| ExecStep::Directory.refused(errno))?;
        }
        Ok(())
    }

    /// Sets the OOM score from the parent, once the child executes its program. A process that is hidden from others of its user
    /// owns nothing in /proc, so the child could not set it earlier.
    pub(crate) fn set_oom_score_of(&self, pid: i32) {
        let Some(score) = self.oom_score.as_ref().filter(|_| !geteuid().is_root()) else { return };
        for _ in 0..OOM_SCORE_TRIES {
            match std::fs::write(format!("/proc/{pid}/oom_score_adj"), score) {
                // This process continues slightly before the kernel has given the child its new memory, which is not hidden.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => std::thread::sleep(OOM_SCORE_PAUSE),
                _ => return,
            }
        }
    }

    /// Groups first and the user last: only root may change the groups.
    fn change_user(&self) -> rustix::io::Result<()> {
        let Some((uid, gid)) = self.ids else { return Ok(()) };
        set_thread_groups(&self.groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        let is_changed = (getuid(), geteuid(), getgid(), getegid()) == (uid, uid, gid, gid);
        let has_way_back = !uid.is_root() && set_thread_res_uid(None, Uid::ROOT, None).is_ok();
        if is_changed && !has_way_back { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Called in the child instead of the exec; returns `None` if this is not a rehearsal.
    pub(crate) fn rehearsal_result(&self) -> Option<Refusal> {
        let program = self.rehearsed.as_ref()?;
        // Without EACCESS: the real user is already the effective one, and the plain call works on every supported kernel.
        Some(match accessat(CWD, program.as_c_str(), Access::EXEC_OK, AtFlags::empty()) {
            Ok(()) => ExecStep::Rehearsed.refused(Errno::PERM),
            Err(errno) => ExecStep::Program.refused(errno),
        })
    }
}

/// Sets a limit. One that may not be raised is kept: it is at least as strict.
fn set_limit(resource: Resource, soft: u64, hard: u64) -> rustix::io::Result<()> {
    match setrlimit(resource, Rlimit { current: Some(soft), maximum: Some(hard) }) {
        Err(Errno::PERM) => {
            let hard = getrlimit(resource).maximum.map_or(hard, |ours| ours.min(hard));
            setrlimit(resource, Rlimit { current: Some(soft.min(hard)), maximum: Some(hard) })
        }
        done => done,
    }
}

/// Returns the soft and hard limits; `files` are the limits of open files for a class that sets none.
fn resources(limits: &Limits, files: Option<(u64, u64)>) -> Vec<(Resource, u64, u64)> {
    // At the hard limit of processor time, the kernel kills without a warning.
    let cpu = limits.cpu_secs.map(|secs| (Resource::Cpu, secs, secs.saturating_add(CPU_GRACE_SECS)));
    let others = [
        (Resource::As, limits.memory_bytes),
        (Resource::Nofile, limits.open_files),
        (Resource::Nproc, limits.processes),
        (Resource::Fsize, limits.file_size_bytes),
        // A core dump would contain the task's data and any secrets of the handler. No core file is this small; and if the kernel
        // pipes core dumps to a program, this number disables them.
        (Resource::Core, Some(1)),
    ];
    let files = files.filter(|_| limits.open_files.is_none()).map(|(soft, hard)| (Resource::Nofile, soft, hard));
    let others = others.into_iter().filter_map(|(resource, limit)| Some((resource, limit?, limit?)));
    cpu.into_iter().chain(files).chain(others).collect()
}

fn oom_score() -> Option<Vec<u8>> {
    // The OOM score may follow the runner's score a second late.
    static OURS: Recent<(), i32> = Recent::new();
    let ask = || std::fs::read_to_string("/proc/self/oom_score_adj").ok()?.trim().parse().ok();
    let ours = OURS.answer((), |()| ask().ok_or(())).ok()?;
    Some(ours.saturating_add(OOM_DISTANCE).min(HIGHEST_OOM_SCORE).to_string().into_bytes())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_warns_before_the_end_and_core_dumps_are_always_off() {
        let limits = Limits { cpu_secs: Some(3), open_files: Some(64), ..Limits::default() };
        let with_files = [(Resource::Cpu, 3, 8), (Resource::Nofile, 64, 64), (Resource::Core, 1, 1)];
        assert_eq!(resources(&limits, None), with_files);
        assert_eq!(resources(&Limits::default(), None), [(Resource::Core, 1, 1)]);
        assert_eq!(resources(&limits, Some((1024, 4096))), with_files);
        let inherited = [(Resource::Nofile, 1024, 4096), (Resource::Core, 1, 1)];
        assert_eq!(resources(&Limits::default(), Some((1024, 4096))), inherited);
    }
}
