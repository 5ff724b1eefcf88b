//! Notifies that any process of this machine wrote to a file; the caller finds out what was written.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use rustix::io::read;

/// Watches one file for as long as the value exists.
#[derive(Debug)]
pub struct FileWatch {
    inotify: OwnedFd,
}

impl FileWatch {
    /// Starts to watch an existing file.
    ///
    /// # Errors
    /// The file cannot be accessed, or the user has reached the kernel's limit of watches.
    pub fn begin(path: &Path) -> io::Result<Self> {
        let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        add_watch(&inotify, path, WatchFlags::MODIFY)?;
        Ok(Self { inotify })
    }

    /// Returns true if the file was written since the last call.
    pub fn was_written(&self) -> bool {
        let mut buffer = [0; 4096];
        let mut was_written = false;
        while read(&self.inotify, &mut buffer).is_ok_and(|count| count > 0) {
            was_written = true;
        }
        was_written
    }
}

impl AsFd for FileWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write as _;

    use super::*;
    use crate::testing::eventually;

    #[test]
    fn each_write_is_heard_of_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        assert!(FileWatch::begin(&path).is_err());
        let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        let watch = FileWatch::begin(&path).unwrap();
        assert!(!watch.was_written());
        file.write_all(b"a").unwrap();
        eventually(|| watch.was_written());
        assert!(!watch.was_written());
    }
}
