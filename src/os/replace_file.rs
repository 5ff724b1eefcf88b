//! A file that others read at any time: it has its old content or its new one, and never a part.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use super::random::token;

/// Puts a file with this content, which everybody may read, in the place of the one that is there, if any. It does not survive a
/// loss of power by all means: whoever writes it so writes it again soon.
///
/// # Errors
/// Something else than a file lies there; what the kernel refuses. The old one stays then.
pub fn replace_file(path: &Path, content: &str) -> io::Result<()> {
    let is_other = fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file());
    let name = path.file_name().filter(|_| !is_other);
    let name = name.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"))?;
    // It begins with a dot and ends in no name that collectors look for.
    let new = path.with_file_name(format!(".{}.{}.new", name.to_string_lossy(), token()?));
    let written = write_new(&new, content).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

fn write_new(path: &Path, content: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content.as_bytes())?;
    // Whatever the umask says.
    file.set_permissions(Permissions::from_mode(0o644))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_is_replaced_whole_and_readable_and_leaves_nothing_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("numbers.prom");
        for content in ["one\n", "two\n"] {
            replace_file(&path, content).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(names(directory.path()), ["numbers.prom"]);
    }

    #[test]
    fn nothing_but_a_file_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        for path in [link.as_path(), directory.path(), Path::new("/dev/null"), Path::new("/nonexistent/file")] {
            assert!(replace_file(path, "x").is_err(), "{}", path.display());
        }
        assert_eq!(names(directory.path()), ["link"]);
    }
}
