//! Identifies a process and determines whether it is still alive. A PID alone is not enough: PIDs are reused, and every container
//! counts its own.
//!
//! Decides nothing about work: on `Unknown`, the caller waits for the lease to expire. Must never report `Dead` in case of doubt.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::pidfd::has_ended;
use taskqueue_host::clock::Moment;
use taskqueue_host::machine::proc_files::{find_stat, read_stat};

/// Identifies one process until the machine reboots. Stored as the text `boot_id:namespace:pid:ticks`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProcessIdentity {
    /// The kernel's random id of this boot, a lower-case UUID.
    pub boot_id: String,
    /// The inode number of the PID namespace in which `pid` is counted.
    pub pid_namespace: u64,
    /// At least 1.
    pub pid: i32,
    /// Clock ticks from boot to the start of the process, as counted by the kernel.
    pub start_ticks: u64,
}

/// What is known about a process identified earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It is running, or at least one of its threads is.
    Alive,
    /// It ended: no such process, another process under its PID, or a zombie.
    Dead,
    /// It cannot be examined from here, or not now: another boot, another PID namespace, a hidden /proc, or a lack of descriptors.
    Unknown,
}

/// A text that is not a process identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a process identity (boot_id:namespace:pid:ticks)")]
pub struct InvalidIdentity;

/// What makes PIDs comparable: the boot and the PID namespace of this process.
struct View {
    boot_id: String,
    pid_namespace: u64,
}

/// Neither changes while a process lives, so they are read once.
fn own_view() -> io::Result<&'static View> {
    static VIEW: OnceLock<View> = OnceLock::new();
    if let Some(view) = VIEW.get() {
        return Ok(view);
    }
    // A /proc mounted for another PID namespace would describe other processes.
    let shown = fs::read_link("/proc/self")?;
    if shown.to_str().and_then(|pid| pid.parse().ok()) != Some(std::process::id()) {
        return Err(io::Error::other("/proc belongs to another PID namespace"));
    }
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
    if !is_boot_id(&boot_id) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel's boot id is not a UUID"));
    }
    let pid_namespace = fs::metadata("/proc/self/ns/pid")?.ino();
    Ok(VIEW.get_or_init(|| View { boot_id, pid_namespace }))
}

impl ProcessIdentity {
    /// Returns the identity of this process.
    ///
    /// # Errors
    /// /proc is missing, unreadable or belongs to another PID namespace.
    pub fn own() -> io::Result<Self> {
        let pid = i32::try_from(std::process::id()).map_err(io::Error::other)?;
        Self::of_pid(pid)?.ok_or_else(|| io::Error::other("/proc does not show this process"))
    }

    /// Returns the identity of the process that has this PID now, zombies included; `None` if there is none.
    ///
    /// # Errors
    /// /proc is missing, unreadable or belongs to another PID namespace.
    pub fn of_pid(pid: i32) -> io::Result<Option<Self>> {
        let view = own_view()?;
        if pid < 1 {
            return Ok(None);
        }
        match read_stat(pid) {
            Ok(stat) => Ok(Some(Self {
                boot_id: view.boot_id.clone(),
                pid_namespace: view.pid_namespace,
                pid,
                start_ticks: stat.start_ticks,
            })),
            // ESRCH: it was reaped between open and read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the identity of an unreaped child that was started between these two moments; `None` if there is none. Opening its
    /// files in /proc at each start costs too much, so the clock is used where it is precise enough.
    ///
    /// # Errors
    /// As for [`ProcessIdentity::of_pid`].
    pub(crate) fn of_child(pid: i32, before: Moment, after: Moment) -> io::Result<Option<Self>> {
        // Whether /proc and the clock use the same origin and the same ticks; checked once.
        static AGREES: OnceLock<bool> = OnceLock::new();
        let by_clock = Some(before.ticks()).filter(|ticks| *ticks == after.ticks());
        if let (Some(start_ticks), Some(true)) = (by_clock, AGREES.get()) {
            let view = own_view()?;
            let boot_id = view.boot_id.clone();
            return Ok(Some(Self { boot_id, pid_namespace: view.pid_namespace, pid, start_ticks }));
        }
        let shown = Self::of_pid(pid)?;
        if let (Some(start_ticks), Some(shown)) = (by_clock, &shown) {
            let _ = AGREES.set(shown.start_ticks == start_ticks);
        }
        Ok(shown)
    }

    /// Returns true if it belongs to this machine and this boot, or if /proc cannot be read, which says nothing about it.
    #[must_use]
    pub fn is_of_this_boot(&self) -> bool {
        own_view().map_or(true, |view| view.boot_id == self.boot_id)
    }

    /// Returns true if its PID is meaningful for this process: same machine, same boot and same PID namespace.
    #[must_use]
    pub fn is_same_view(&self) -> bool {
        self.shares_view().unwrap_or(false)
    }

    /// Same as [`ProcessIdentity::is_same_view`].
    ///
    /// # Errors
    /// As for [`ProcessIdentity::own`].
    pub(crate) fn shares_view(&self) -> io::Result<bool> {
        let view = own_view()?;
        Ok(view.boot_id == self.boot_id && view.pid_namespace == self.pid_namespace)
    }

    /// Returns whether the process is alive.
    #[must_use]
    pub fn liveness(&self) -> Liveness {
        self.examine().unwrap_or(Liveness::Unknown)
    }

    /// Same as [`ProcessIdentity::liveness`]. The order of the checks detects a reused PID.
    ///
    /// # Errors
    /// It cannot be examined now, for lack of descriptors or memory.
    pub(crate) fn examine(&self) -> io::Result<Liveness> {
        let pid = Some(self.pid).filter(|pid| *pid > 0).and_then(Pid::from_raw);
        let Some(pid) = pid else { return Ok(Liveness::Unknown) };
        if !self.shares_view()? {
            return Ok(Liveness::Unknown);
        }
        // The pidfd is opened first: what is read from /proc afterwards belongs to its process or to a later one, and a later one
        // has other ticks.
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Some(pidfd),
            // INVAL and NOENT (newer kernels): the number is used only by a thread, group or session.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return Ok(Liveness::Dead),
            Err(lack @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(lack.into()),
            // Forbidden here.
            Err(_) => None,
        };
        // An ended main thread is a zombie although other threads may still run; only the pidfd shows that.
        if pidfd.as_ref().is_some_and(has_ended) {
            return Ok(Liveness::Dead);
        }
        Ok(match find_stat(self.pid)? {
            Some(stat) if stat.start_ticks != self.start_ticks => Liveness::Dead,
            Some(stat) if stat.has_ended() && pidfd.is_none() => Liveness::Dead,
            Some(_) => Liveness::Alive,
            None if pidfd.is_some_and(|pidfd| has_ended(&pidfd)) => Liveness::Dead,
            // hidepid, or no permission: some process has this PID, and it is unknown which.
            None => Liveness::Unknown,
        })
    }
}

impl fmt::Display for ProcessIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.boot_id, self.pid_namespace, self.pid, self.start_ticks)
    }
}

impl FromStr for ProcessIdentity {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        let mut parts = text.split(':');
        let mut part = || parts.next().ok_or(InvalidIdentity);
        let (boot_id, pid_namespace, pid, start_ticks) = (part()?, part()?, part()?, part()?);
        if part().is_ok() || !is_boot_id(boot_id) {
            return Err(InvalidIdentity);
        }
        Ok(Self {
            boot_id: boot_id.to_owned(),
            pid_namespace: decimal(pid_namespace)?,
            pid: i32::try_from(decimal(pid)?).ok().filter(|pid| *pid > 0).ok_or(InvalidIdentity)?,
            start_ticks: decimal(start_ticks)?,
        })
    }
}

/// Accepts only the form that `Display` writes: two texts of the same process are always equal.
fn decimal(text: &str) -> Result<u64, InvalidIdentity> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain).ok_or(InvalidIdentity)
}

fn is_boot_id(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        })
}

#[cfg(test)]
mod tests;
