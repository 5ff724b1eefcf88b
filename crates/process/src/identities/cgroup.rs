//! A worker's own control group (version 2). All descendants of the worker are in it, whatever they do to their session or
//! environment, so they can be ended when the worker is dead.
//!
//! The worker itself enters the group once: moving a process takes milliseconds, while children start in the group at no cost.
//! This is done only if the worker may divide its present group: a service manager has delegated it, or there is none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{Access, access, getxattr};
use rustix::io::Errno;

use super::identity::{Liveness, ProcessIdentity};
use taskqueue_host::clock::Moment;
use taskqueue_host::machine::proc_files::if_shown;

/// The mount points of version 2, alone or beside version 1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
const PREFIX: &str = "taskqueue-";
/// Marks a group whose subgroups the service manager leaves to the service.
const DELEGATED: [&str; 2] = ["user.delegate", "trusted.delegate"];
/// Present while systemd is the service manager.
const SYSTEMD: &str = "/run/systemd/system";
/// How long killed processes may take to disappear.
const END_WAIT: Duration = Duration::from_secs(5);
const POLL_EVERY: Duration = Duration::from_millis(2);
/// The maximum depth of the search for groups.
const DEEPEST: usize = 16;

/// Returns the directory of the group of this process; `None` without version 2.
///
/// # Errors
/// /proc cannot be read now.
pub(crate) fn own_group() -> io::Result<Option<PathBuf>> {
    // Missing in a kernel without control groups.
    let groups = if_shown(fs::read_to_string("/proc/self/cgroup"))?.unwrap_or_default();
    let Some(group) = groups.lines().find_map(|line| line.strip_prefix("0::/")) else { return Ok(None) };
    let mounts = MOUNTS.into_iter().map(Path::new).filter(|mount| is_group(mount));
    Ok(mounts.map(|mount| mount.join(group)).find(|directory| is_group(directory)))
}

/// Moves this process into its own group. Children started later are in it too.
///
/// # Errors
/// Why it cannot have its own group.
pub fn enter_own_group() -> Result<(), String> {
    let base = divisible_group()?;
    let own = ProcessIdentity::own().map_err(|error| error.to_string())?;
    remove_empty(&base);
    let directory = base.join(name_of(&own));
    let entered = fs::create_dir(&directory).and_then(|()| {
        // Missing in kernels before 5.14.
        fs::metadata(directory.join("cgroup.kill"))?;
        fs::write(directory.join("cgroup.procs"), "0")
    });
    entered.map_err(|error| {
        let _ = fs::remove_dir(&directory);
        format!("{}: {error}", directory.display())
    })
}

/// Returns why a worker that is started like this process cannot have its own group, if so.
#[must_use]
pub fn why_no_own_group() -> Option<String> {
    divisible_group().err()
}

/// Returns the group of this process, if subgroups may be created in it.
fn divisible_group() -> Result<PathBuf, String> {
    let own = own_group().map_err(|error| format!("/proc/self/cgroup: {error}"))?;
    let base = own.ok_or("control groups of version 2 are not mounted here")?;
    if Path::new(SYSTEMD).exists() && !base.ancestors().take_while(|group| is_group(group)).any(is_delegated) {
        return Err(format!("the control group {} is not delegated (Delegate=yes in a unit)", base.display()));
    }
    for path in [base.clone(), base.join("cgroup.procs")] {
        access(&path, Access::WRITE_OK).map_err(|errno| format!("{}: {}", path.display(), io::Error::from(errno)))?;
    }
    Ok(base)
}

/// Kills all processes in the group of a dead worker, if it had one, and returns how many there were.
///
/// # Errors
/// Some could not be killed in time, or the groups cannot be read now.
pub fn end_group_of(worker: &ProcessIdentity) -> io::Result<usize> {
    if !worker.shares_view()? || worker.examine()? != Liveness::Dead {
        return Ok(0);
    }
    let (name, own) = (name_of(worker), own_group()?);
    let mut found = Vec::new();
    for mount in MOUNTS.into_iter().map(Path::new).filter(|mount| is_group(mount)) {
        find(mount, &name, DEEPEST, &mut found)?;
    }
    let mut ended = 0;
    // Skips the group of this process, in case that worker started it.
    for group in found.iter().filter(|group| own.as_ref().is_none_or(|own| !own.starts_with(group))) {
        ended += end_all(group)?;
    }
    Ok(ended)
}

fn end_all(group: &Path) -> io::Result<usize> {
    let count = count_processes(group)?;
    // A group that this process may not write may hold processes that it must not kill.
    if count > 0 && has_written(fs::write(group.join("cgroup.kill"), "1"))? {
        let deadline = Moment::after(END_WAIT);
        while is_populated(group)? {
            if deadline.has_passed() {
                let message = format!("processes in {} could not be ended", group.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            thread::sleep(POLL_EVERY);
        }
    }
    remove_tree(group);
    Ok(count)
}

fn name_of(worker: &ProcessIdentity) -> String {
    format!("{PREFIX}{}-{}-{}", worker.pid_namespace, worker.pid, worker.start_ticks)
}

/// Returns the worker of this boot after which a group is named.
fn worker_of(name: &str, boot_id: &str) -> Option<ProcessIdentity> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    let (namespace, pid, ticks) = (parts.next()?, parts.next()?, parts.next()?);
    let (pid_namespace, pid, start_ticks) = (namespace.parse().ok()?, pid.parse().ok()?, ticks.parse().ok()?);
    parts.next().is_none().then(|| ProcessIdentity { boot_id: boot_id.to_owned(), pid_namespace, pid, start_ticks })
}

/// Removes empty groups of dead workers.
fn remove_empty(base: &Path) {
    let Ok(own) = ProcessIdentity::own() else { return };
    for group in groups_in(base).unwrap_or_default() {
        let name = group.file_name().unwrap_or_default().to_string_lossy();
        if worker_of(&name, &own.boot_id).is_some_and(|worker| worker.liveness() == Liveness::Dead) {
            remove_tree(&group);
        }
    }
}

/// Removes a group and its subgroups; the kernel refuses to remove groups with processes.
fn remove_tree(group: &Path) {
    groups_in(group).unwrap_or_default().iter().for_each(|inner| remove_tree(inner));
    let _ = fs::remove_dir(group);
}

fn find(group: &Path, name: &str, depth: usize, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for inner in groups_in(group)? {
        if inner.file_name().is_some_and(|found| found == name) {
            found.push(inner);
        } else if depth > 0 {
            find(&inner, name, depth - 1, found)?;
        }
    }
    Ok(())
}

fn groups_in(group: &Path) -> io::Result<Vec<PathBuf>> {
    let Some(entries) = if_shown(fs::read_dir(group))? else { return Ok(Vec::new()) };
    let entries = entries.collect::<io::Result<Vec<_>>>()?.into_iter();
    // The kernel says with each name what it is.
    Ok(entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect())
}

fn count_processes(group: &Path) -> io::Result<usize> {
    let own = lines_of(&group.join("cgroup.procs"))?.lines().count();
    groups_in(group)?.iter().try_fold(own, |count, inner| Ok(count + count_processes(inner)?))
}

fn is_populated(group: &Path) -> io::Result<bool> {
    Ok(lines_of(&group.join("cgroup.events"))?.lines().any(|line| line == "populated 1"))
}

/// Returns the text of a file of a group; nothing if the group is removed or hidden, or has threads only.
fn lines_of(file: &Path) -> io::Result<String> {
    match fs::read_to_string(file) {
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NODEV | Errno::OPNOTSUPP)) => {
            Ok(String::new())
        }
        text => Ok(if_shown(text)?.unwrap_or_default()),
    }
}

/// Returns false if the group is removed, or if this process may not write it.
fn has_written(written: io::Result<()>) -> io::Result<bool> {
    match written {
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NODEV | Errno::ROFS)) => Ok(false),
        written => Ok(if_shown(written)?.is_some()),
    }
}

/// Version 1 lacks this file.
fn is_group(directory: &Path) -> bool {
    directory.join("cgroup.controllers").exists()
}

fn is_delegated(group: &Path) -> bool {
    let mut value = [0_u8; 8];
    DELEGATED.iter().any(|name| {
        getxattr(group, *name, &mut value[..])
            .is_ok_and(|length| value.get(..length).is_some_and(|value| value == b"1"))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_group_names_the_worker_that_made_it() {
        let own = ProcessIdentity::own().unwrap();
        assert_eq!(worker_of(&name_of(&own), &own.boot_id), Some(own.clone()));
        for name in ["taskqueue-1-2", "taskqueue-1-2-3-4", "taskqueue-a-2-3", "system.slice"] {
            assert_eq!(worker_of(name, &own.boot_id), None, "{name}");
        }
        assert_eq!(end_group_of(&own).unwrap(), 0, "it lives");
    }
}
