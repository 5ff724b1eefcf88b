//! Opens a file to append to it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file to append to it, and creates it (mode 0600) if needed. Never waits for the reader of a pipe, and follows
/// no symbolic link at the end of the path: it could lead to another user's file.
///
/// # Errors
/// The path is not a regular file, or the kernel reports an error.
pub fn open_to_append(path: &Path) -> io::Result<File> {
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).map_err(io::Error::other)?;
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path);
    let kind = match &opened {
        Ok(file) => file.metadata(),
        // The error of the kernel for a link or a pipe names neither.
        Err(_) => fs::symlink_metadata(path),
    };
    if kind.is_ok_and(|kind| !kind.is_file()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    opened
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_file_is_created_for_its_owner_only_and_appended_to() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        for line in ["one\n", "two\n"] {
            open_to_append(&path).unwrap().write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn neither_a_pipe_nor_a_link_nor_a_device_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let beside = |name: &str| directory.path().join(name);
        let (pipe, read, link) = (beside("pipe"), beside("read"), beside("link"));
        for path in [&pipe, &read] {
            mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        }
        let _reader = OpenOptions::new().read(true).write(true).open(&read).unwrap();
        std::os::unix::fs::symlink(beside("target"), &link).unwrap();
        for path in [&pipe, &read, &link, directory.path(), Path::new("/dev/null")] {
            assert_eq!(open_to_append(path).unwrap_err().to_string(), "it is not a regular file", "{}", path.display());
        }
        assert!(!beside("target").exists());
        assert_eq!(open_to_append(Path::new("/nonexistent/log")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
