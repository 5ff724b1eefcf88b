//! Who a process is, and whether it still lives. A PID alone says nothing: PIDs are reused, and every container counts
//! its own.
//!
//! Decides nothing about work: `Unknown` is an answer, and whoever asks waits for the lease then. Must never turn
//! doubt into `Dead`.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::pidfd::has_ended;
use taskqueue_host::clock::Moment;
use taskqueue_host::machine::proc_files::read_stat;

/// Names one process for as long as its machine runs. Its text, `boot_id:namespace:pid:ticks`, is what is stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProcessIdentity {
    /// The kernel's random name for this boot of the machine, a lower-case UUID.
    pub boot_id: String,
    /// The inode number of the PID namespace in which `pid` is counted.
    pub pid_namespace: u64,
    /// At least 1.
    pub pid: i32,
    /// Clock ticks from boot to the start of the process, as the kernel counts them.
    pub start_ticks: u64,
}

/// What is known about a process that was named earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It runs, or at least one of its threads does.
    Alive,
    /// It ended: no such process, another process under its PID, or a zombie.
    Dead,
    /// It cannot be seen from here: another boot, another PID namespace, or a hidden /proc.
    Unknown,
}

/// A text that is no process identity.
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
    // A /proc mounted for another PID namespace would answer for other people's processes.
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
    /// The identity of this process.
    ///
    /// # Errors
    /// When /proc is missing, unreadable or belongs to another PID namespace.
    pub fn own() -> io::Result<Self> {
        let pid = i32::try_from(std::process::id()).map_err(io::Error::other)?;
        Self::of_pid(pid)?.ok_or_else(|| io::Error::other("/proc does not show this process"))
    }

    /// The identity of the process that has this PID now, zombies included; `None` when there is none.
    ///
    /// # Errors
    /// When /proc is missing, unreadable or belongs to another PID namespace.
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

    /// The identity of a child that was started between these two moments and was not reaped; `None` when there is none. To
    /// open its files in /proc costs too much at each start, so the clock is asked where it tells enough.
    ///
    /// # Errors
    /// As of [`ProcessIdentity::of_pid`].
    pub(crate) fn of_child(pid: i32, before: Moment, after: Moment) -> io::Result<Option<Self>> {
        // Whether /proc and the clock have the same beginning and the same ticks, which is seen once.
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

    /// Whether the machine has not been started again since, and is this one.
    #[must_use]
    pub fn is_of_this_boot(&self) -> bool {
        own_view().is_ok_and(|view| view.boot_id == self.boot_id)
    }

    /// Whether its PID means the same to us: the same boot of the same machine and the same PID namespace.
    #[must_use]
    pub fn is_same_view(&self) -> bool {
        own_view().is_ok_and(|view| view.boot_id == self.boot_id && view.pid_namespace == self.pid_namespace)
    }

    /// Whether the process lives, asked in an order in which no PID can change hands unnoticed.
    #[must_use]
    pub fn liveness(&self) -> Liveness {
        if self.pid < 1 || !self.is_same_view() {
            return Liveness::Unknown;
        }
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Liveness::Unknown;
        };
        // The pidfd comes first: whatever is read from /proc afterwards belongs to its process or to a later one, and
        // a later one has other ticks.
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Some(pidfd),
            // INVAL and NOENT (newer kernels): the number lives on as a thread, group or session only.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return Liveness::Dead,
            Err(_) => None,
        };
        self.liveness_by_stat(pidfd.as_ref())
    }

    fn liveness_by_stat(&self, pidfd: Option<&OwnedFd>) -> Liveness {
        match read_stat(self.pid) {
            Ok(stat) if stat.start_ticks != self.start_ticks => Liveness::Dead,
            // A main thread that ended leaves a zombie although other threads go on; only the pidfd can tell.
            Ok(stat) if stat.has_ended() && pidfd.is_none_or(has_ended) => Liveness::Dead,
            Ok(_) => Liveness::Alive,
            Err(_) if pidfd.is_some_and(has_ended) => Liveness::Dead,
            // hidepid, or no permission: somebody has this PID, and we cannot see who.
            Err(_) => Liveness::Unknown,
        }
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

/// Only the form that `Display` writes: two texts of one process are always equal.
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
