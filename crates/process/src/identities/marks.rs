//! Records what each slot of a process is working on, in a file that survives the process. After the process died, the file shows
//! which of its runs it had started and which it only held.
//!
//! Written to the page cache: it survives the process, but not the machine. Marks of another boot are not usable. Does not
//! interpret marks.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::identity::{Liveness, ProcessIdentity};
use taskqueue_host::files::file_checks::{create_trusted_dir, exists_and_is_trusted};
use taskqueue_host::machine::account::is_own_regular_file;

const PREFIX: &str = "slots-";
/// A mark and its newline, padded: each slot writes at its own position.
const LINE_BYTES: usize = 64;

/// The files that this process writes: a program may have several workers at once.
static SHARED: Mutex<BTreeMap<PathBuf, SharedMarks>> = Mutex::new(BTreeMap::new());

/// Shared data of the writers of one file.
#[derive(Debug, Default)]
struct SharedMarks {
    writers: usize,
    /// Slots that have a position in the file.
    slots: usize,
    /// Whether one of them left marks that may be needed.
    is_of_use: bool,
}

/// The marks of the slots of one worker of this process.
#[derive(Debug)]
pub struct Marks {
    file: File,
    path: PathBuf,
    first_slot: usize,
    has_ended: bool,
}

impl Marks {
    /// Starts the marks of `slots` slots in the file of a process. Creates the directory with mode 0700 if needed.
    ///
    /// # Errors
    /// The directory or the file cannot be used.
    pub fn begin(directory: &Path, owner: &str, slots: usize) -> io::Result<Self> {
        create_trusted_dir(directory)?;
        let path = path_of(directory, owner);
        let mut files = shared();
        let others = files.get(&path);
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(others.is_none()).mode(0o600).open(&path)?;
        let shared = files.entry(path.clone()).or_default();
        let first_slot = shared.slots;
        (shared.writers, shared.slots) = (shared.writers + 1, shared.slots + slots);
        Ok(Self { file, path, first_slot, has_ended: false })
    }

    /// Sets the mark of this slot, replacing the previous one. At most 62 bytes are kept. If the write fails, the file is
    /// removed: no marks are better than wrong ones.
    pub fn set(&self, slot: usize, mark: &str) {
        let mut line = [b' '; LINE_BYTES];
        let shown = mark.as_bytes().get(..LINE_BYTES - 2).unwrap_or(mark.as_bytes());
        line[..shown.len()].copy_from_slice(shown);
        line[LINE_BYTES - 1] = b'\n';
        let place = u64::try_from((self.first_slot + slot) * LINE_BYTES).unwrap_or(u64::MAX);
        if self.file.write_all_at(&line, place).is_err() {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Declares that its marks are no longer needed.
    pub fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        let mut files = shared();
        let Some(shared) = files.get_mut(&self.path) else { return };
        shared.writers -= 1;
        shared.is_of_use |= !self.has_ended;
        if shared.writers == 0 {
            if !shared.is_of_use {
                let _ = fs::remove_file(&self.path);
            }
            files.remove(&self.path);
        }
    }
}

fn shared() -> MutexGuard<'static, BTreeMap<PathBuf, SharedMarks>> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the marks that a process of this user left; `None` if it left no file, so nothing is known.
///
/// # Errors
/// Another user can change the directory, or the file cannot be read.
pub fn marks_of(directory: &Path, owner: &str) -> io::Result<Option<Vec<String>>> {
    let path = path_of(directory, owner);
    if !exists_and_is_trusted(directory)? || !fs::symlink_metadata(&path).is_ok_and(|found| is_own_regular_file(&found))
    {
        return Ok(None);
    }
    match fs::read(path) {
        // The position of a slot without a mark has NUL bytes and no newline. They precede the next mark in its line, and are
        // trimmed.
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let marks = text.lines().map(|line| line.trim_start_matches('\0').trim_end().to_owned());
            Ok(Some(marks.collect()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the processes of this user that left marks and are dead or belong to another boot. A missing directory has none.
///
/// # Errors
/// Another user can change the directory, or it cannot be read.
pub fn dead_owners(directory: &Path) -> io::Result<Vec<String>> {
    let mut dead = Vec::new();
    if !exists_and_is_trusted(directory)? {
        return Ok(dead);
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(owner) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        let is_of_no_use = |owner: ProcessIdentity| owner.liveness() == Liveness::Dead || !owner.is_of_this_boot();
        let is_own = || entry.metadata().is_ok_and(|found| is_own_regular_file(&found));
        if owner.parse().is_ok_and(is_of_no_use) && is_own() {
            dead.push(owner.to_owned());
        }
    }
    Ok(dead)
}

/// Removes the marks of a process.
pub fn forget(directory: &Path, owner: &str) {
    // Another process may have removed it already.
    let _ = fs::remove_file(path_of(directory, owner));
}

fn path_of(directory: &Path, owner: &str) -> PathBuf {
    directory.join(format!("{PREFIX}{}", owner.replace('/', "_")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn each_slot_shows_what_it_is_at_work_for_and_nothing_before() {
        let directory = tempfile::tempdir().unwrap();
        let marks = Marks::begin(directory.path(), "somebody", 2).unwrap();
        marks.set(1, "second");
        assert_eq!(marks_of(directory.path(), "somebody").unwrap().unwrap(), ["second"]);
        marks.set(0, "a much longer first");
        marks.set(0, "first");
        assert_eq!(marks_of(directory.path(), "somebody").unwrap().unwrap(), ["first", "second"]);
        assert_eq!(marks_of(directory.path(), "somebody else").unwrap(), None);
        marks.end();
        assert_eq!(marks_of(directory.path(), "somebody").unwrap(), None);
    }

    #[test]
    fn workers_of_one_process_share_a_file_until_the_last_of_them_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let begin = |slots| Marks::begin(directory.path(), "somebody", slots).unwrap();
        let shown = || marks_of(directory.path(), "somebody").unwrap();
        let (first, second) = (begin(1), begin(2));
        second.set(0, "second");
        first.set(0, "first");
        assert_eq!(shown().unwrap(), ["first", "second"]);
        first.end();
        second.set(1, "third");
        assert_eq!(shown().unwrap(), ["first", "second", "third"]);
        second.end();
        assert_eq!(shown(), None);
        let (well, badly) = (begin(1), begin(1));
        badly.set(0, "kept");
        drop(badly);
        well.end();
        assert_eq!(shown().unwrap().last().unwrap(), "kept");
        drop(begin(1));
        assert_eq!(shown().unwrap(), [""; 0], "nothing of what was before");
    }

    #[test]
    fn the_marks_of_another_boot_are_of_no_use_to_anybody() {
        let directory = tempfile::tempdir().unwrap();
        let boot_id = "00000000-0000-4000-8000-000000000000".to_owned();
        let gone = ProcessIdentity { boot_id, ..ProcessIdentity::own().unwrap() }.to_string();
        Marks::begin(directory.path(), &gone, 1).unwrap();
        assert_eq!(dead_owners(directory.path()).unwrap(), [gone]);
    }

    #[test]
    fn marks_that_another_user_may_have_written_are_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let dead = ProcessIdentity { start_ticks: 1, ..ProcessIdentity::own().unwrap() }.to_string();
        let marks = Marks::begin(directory.path(), &dead, 1).unwrap();
        marks.set(0, "mark");
        let found = || (marks_of(directory.path(), &dead).ok().flatten(), dead_owners(directory.path()).ok());
        let all = (Some(vec!["mark".to_owned()]), Some(vec![dead.clone()]));
        assert_eq!(found(), all);
        for (mode, expected) in [(0o777, (None, None)), (0o755, all)] {
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(found(), expected, "{mode:o}");
        }
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(path_of(directory.path(), &dead), Some(65_534), None).unwrap();
            assert_eq!(found(), (None, Some(Vec::new())));
        }
    }

    #[test]
    fn the_dead_are_told_from_the_living_and_forgotten_when_asked_to() {
        let directory = tempfile::tempdir().unwrap();
        let own = ProcessIdentity::own().unwrap();
        let dead = ProcessIdentity { start_ticks: 1, ..own.clone() }.to_string();
        for owner in [&own.to_string(), &dead] {
            Marks::begin(directory.path(), owner, 1).unwrap();
        }
        assert_eq!(dead_owners(directory.path()).unwrap(), [dead.as_str()]);
        forget(directory.path(), &dead);
        forget(directory.path(), &dead);
        assert_eq!(dead_owners(directory.path()).unwrap(), [""; 0]);
        assert_eq!(dead_owners(&directory.path().join("missing")).unwrap(), [""; 0]);
    }
}
