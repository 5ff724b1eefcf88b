//! Finds the process that holds a lock on a file. `/proc/locks` names the owner of a POSIX lock or a `flock`; the `fdinfo` of a
//! process lists the locks of its open files. Processes outside this PID namespace are not visible.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{major, minor};

/// A process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// PID
    pub process_id: i32,
    /// The name of its program according to the kernel; empty if it cannot be read.
    pub program: String,
}

/// Returns a process other than this one that holds a write lock on one of these bytes of the file.
#[must_use]
pub fn write_lock_holder(path: &Path, first: u64, last: u64) -> Option<LockHolder> {
    holder(path, |lock| !lock.is_flock && lock.first <= last && first <= lock.last)
}

/// Returns a process other than this one that holds an exclusive `flock` on the file.
#[must_use]
pub fn flock_holder(path: &Path) -> Option<LockHolder> {
    holder(path, |lock| lock.is_flock)
}

fn holder(path: &Path, is_wanted: impl Fn(&Lock) -> bool) -> Option<LockHolder> {
    let file = fs::metadata(path).ok()?;
    let device = (major(file.dev()), minor(file.dev()));
    let own = i32::try_from(std::process::id()).ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let is_it = |lock: &Lock| lock.is_write && lock.inode == file.ino() && is_wanted(lock);
    let wanted = |line: &str| Lock::parse(line).filter(is_it);
    let process_id = locks.lines().filter_map(wanted).find_map(|lock| match lock.owner {
        Some(owner) => (owner != own && (lock.device == device || has_open(owner, &file))).then_some(owner),
        // A lock of an open file description has no owner: any process that has the file open may hold it.
        None => all_processes().find(|pid| *pid != own && holds_by_descriptor(*pid, is_it)),
    })?;
    let program = fs::read_to_string(format!("/proc/{process_id}/comm")).unwrap_or_default();
    Some(LockHolder { process_id, program: program.trim_end().to_owned() })
}

/// A held lock: a line of `/proc/locks`.
struct Lock {
    owner: Option<i32>,
    device: (u32, u32),
    inode: u64,
    first: u64,
    last: u64,
    is_write: bool,
    is_flock: bool,
}

impl Lock {
    /// Parses `1: POSIX  ADVISORY  WRITE 1234 08:01:5678 120 120`; a line with `->` belongs to a waiting process.
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, kind, _, access, owner, file, first, last] = words.as_slice() else { return None };
        if !matches!(*kind, "POSIX" | "OFDLCK" | "FLOCK") {
            return None;
        }
        let mut parts = file.split(':');
        let mut hex = || u32::from_str_radix(parts.next()?, 16).ok();
        let device = (hex()?, hex()?);
        Some(Self {
            owner: owner.parse().ok().filter(|pid| *pid > 0),
            device,
            inode: parts.next()?.parse().ok()?,
            first: first.parse().ok()?,
            last: if *last == "EOF" { u64::MAX } else { last.parse().ok()? },
            is_write: *access == "WRITE",
            is_flock: *kind == "FLOCK",
        })
    }
}

fn all_processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn holds_by_descriptor(pid: i32, is_it: impl Fn(&Lock) -> bool) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return false };
    descriptors.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok()).any(|text| {
        let locks = text.lines().filter_map(|line| Lock::parse(line.strip_prefix("lock:")?));
        locks.into_iter().any(|lock| lock.owner.is_none() && is_it(&lock))
    })
}

/// Returns true if the process has the file open. Some file systems show another device number in `/proc/locks` than in `stat`.
fn has_open(pid: i32, file: &fs::Metadata) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let is_it = |found: fs::Metadata| (found.dev(), found.ino()) == (file.dev(), file.ino());
    descriptors.flatten().filter_map(|entry| fs::metadata(entry.path()).ok()).any(is_it)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read_and_those_of_waiting_processes_are_not() {
        let lock = Lock::parse("5: POSIX  ADVISORY  WRITE 1234 08:0f:5678 120 127").unwrap();
        assert_eq!((lock.owner, lock.device, lock.inode), (Some(1234), (8, 15), 5678));
        assert_eq!((lock.first, lock.last, lock.is_write), (120, 127, true));
        let lock = Lock::parse("6: OFDLCK ADVISORY  READ  -1 00:2b:9 0 EOF").unwrap();
        assert_eq!((lock.owner, lock.last, lock.is_write), (None, u64::MAX, false));
        let lock = Lock::parse("7: FLOCK  ADVISORY  WRITE 1234 08:01:5 0 EOF").unwrap();
        assert_eq!((lock.owner, lock.is_flock), (Some(1234), true));
        for other in ["5: -> POSIX  ADVISORY  WRITE 1 08:01:5 0 0", "7: LEASE  ACTIVE  READ 1 08:01:5 0 EOF", ""] {
            assert!(Lock::parse(other).is_none(), "{other}");
        }
    }
}
