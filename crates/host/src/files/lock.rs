//! A lock between processes of one host, held while the value lives; the kernel releases it when the process dies.
//!
//! For one migration at a time, for files that are replaced, and for files of the spool: a runner holds the lock of its file as
//! long as it lives.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use fs2::FileExt;
use rustix::fs::OFlags;

use crate::clock::Moment;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// An exclusive lock on a file.
#[derive(Debug)]
pub struct FileLock {
    file: File,
}

impl FileLock {
    /// Returns the locked file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Takes the lock and creates the file (mode 0600) if needed; waits at most `wait` for another holder.
    ///
    /// # Errors
    /// `TimedOut` if another process held the lock the whole time; other errors if the path is a symbolic link or cannot be
    /// opened.
    pub fn acquire(path: &Path, wait: Duration) -> io::Result<Self> {
        Self::acquire_watched(path, wait, &mut || {})
    }

    /// Same as [`FileLock::acquire`]; calls `waiting` each time that another process holds the lock.
    ///
    /// # Errors
    /// As for [`FileLock::acquire`].
    pub fn acquire_watched(path: &Path, wait: Duration, waiting: &mut dyn FnMut()) -> io::Result<Self> {
        let deadline = Moment::after(wait);
        let mut pause = FIRST_PAUSE;
        loop {
            let file = open(path)?;
            match file.try_lock_exclusive() {
                // If the file was removed meanwhile, other processes lock the new file with this name.
                Ok(()) if is_at(&file, path) => return Ok(Self { file }),
                Ok(()) => {}
                Err(error) if error.raw_os_error() == fs2::lock_contended_error().raw_os_error() => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if deadline.has_passed() {
                let message = format!("another process holds {}", path.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            waiting();
            std::thread::sleep(pause.min(deadline.remaining()));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // An explicit unlock, because closing is not enough: a child that another thread is just starting has a copy of the
        // descriptor until it executes its program.
        let _ = FileExt::unlock(&self.file);
    }
}

fn open(path: &Path) -> io::Result<File> {
    // A symbolic link could make this process create or lock another user's file.
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).map_err(io::Error::other)?;
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(no_follow)
        .open(path)
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(ours), Ok(named)) => (ours.dev(), ours.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_second_holder_waits_only_as_long_as_it_wants_to() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let held = FileLock::acquire(&path, Duration::ZERO).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let refused = FileLock::acquire(&path, Duration::from_millis(20)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        drop(held);
        FileLock::acquire(&path, Duration::ZERO).unwrap();
    }

    #[test]
    fn a_waiting_lock_is_acquired_when_released_even_if_the_file_was_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let held = FileLock::acquire(&path, Duration::ZERO).unwrap();
        let waiting = {
            let path = path.clone();
            std::thread::spawn(move || FileLock::acquire(&path, Duration::from_secs(20)).map(|lock| (lock, path)))
        };
        fs::remove_file(&path).unwrap();
        drop(held);
        let (_lock, path) = waiting.join().unwrap().unwrap();
        assert!(FileLock::acquire(&path, Duration::ZERO).is_err());
    }

    #[test]
    fn a_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path().join("victim"), &link).unwrap();
        assert!(FileLock::acquire(&link, Duration::ZERO).is_err());
        assert!(!directory.path().join("victim").exists());
    }
}
