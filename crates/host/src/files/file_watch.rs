//! Hears that a file was written, by whichever process of this machine. What was written is for the listener to find out.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use rustix::io::read;

/// Watches one file for as long as it exists.
#[derive(Debug)]
pub struct FileWatch {
    inotify: OwnedFd,
}

impl FileWatch {
    /// Begins to watch the file, which must exist.
    ///
    /// # Errors
    /// The file cannot be seen, or the kernel has no watch left for this user.
    pub fn begin(path: &Path) -> io::Result<Self> {
        let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        add_watch(&inotify, path, WatchFlags::MODIFY)?;
        Ok(Self { inotify })
    }

    /// Whether it was written since the last question.
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
