//! Replaces a file atomically: readers see the old content or the new content, never a part.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use rustix::process::geteuid;

use super::lock::FileLock;
use crate::random::token;

/// The digits of a [`token`].
const TOKEN_DIGITS: usize = 32;
/// How long another process may hold a new file while it checks whether the writer has died.
const LOOK_WAIT: Duration = Duration::from_secs(5);

/// Atomically replaces a file with this content, readable by everybody. The new content may be lost in a power failure, so this
/// is for files that are written again soon. Also removes unfinished new files of dead writers.
///
/// # Errors
/// The path is not a regular file, or the kernel reports an error. The old file is then left unchanged.
pub fn replace_file(path: &Path, content: &str) -> io::Result<()> {
    let is_other = fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file());
    let name = path.file_name().filter(|_| !is_other);
    let name = name.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))?;
    let name = name.to_string_lossy();
    remove_unfinished(path, &name);
    let new = path.with_file_name(name_of_new(&name, &token()?));
    // Each writer has its own file; its lock shows that the writer is alive.
    let lock = FileLock::acquire(&new, LOOK_WAIT);
    let written = lock.and_then(|lock| write(lock.file(), content).and_then(|()| fs::rename(&new, path)));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

/// Returns a hidden name with a suffix that metrics collectors do not read.
fn name_of_new(name: &str, token: &str) -> String {
    format!(".{name}.{token}.new")
}

fn write(mut file: &File, content: &str) -> io::Result<()> {
    file.write_all(content.as_bytes())?;
    // Independent of the umask.
    file.set_permissions(Permissions::from_mode(0o644))
}

/// Removes unfinished files of this user beside this file that no process holds. Errors are ignored: a remaining file does no
/// harm.
fn remove_unfinished(path: &Path, name: &str) {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let is_new = entry.file_name().to_str().is_some_and(|other| is_name_of_new(other, name));
        let is_own = || entry.metadata().is_ok_and(|it| it.is_file() && it.uid() == geteuid().as_raw());
        if is_new && is_own() {
            let _ = FileLock::acquire(&entry.path(), Duration::ZERO).and_then(|_lock| fs::remove_file(entry.path()));
        }
    }
}

fn is_name_of_new(other: &str, name: &str) -> bool {
    let rest = other.strip_prefix('.').and_then(|other| other.strip_prefix(name)?.strip_prefix('.'));
    let token = rest.and_then(|rest| rest.strip_suffix(".new"));
    token.is_some_and(|token| token.len() == TOKEN_DIGITS && token.bytes().all(|digit| digit.is_ascii_hexdigit()))
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
    fn what_a_dead_writer_left_is_removed_and_what_a_living_one_writes_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let beside = |name: &str| directory.path().join(name);
        let new = |token: char| name_of_new("numbers.prom", &token.to_string().repeat(TOKEN_DIGITS));
        let (dead, living) = (new('a'), new('b'));
        let others = [".numbers.prom.new", ".other.prom.0123456789abcdef0123456789abcdef.new", ".numbers.prom.a.new"];
        for name in others.into_iter().chain([dead.as_str()]) {
            fs::write(beside(name), "a part").unwrap();
        }
        fs::create_dir(beside(&new('c'))).unwrap();
        let lock = FileLock::acquire(&beside(&living), Duration::ZERO).unwrap();
        replace_file(&beside("numbers.prom"), "whole\n").unwrap();
        let mut expected: Vec<String> = others.map(str::to_owned).into();
        expected.extend([new('c'), living, "numbers.prom".to_owned()]);
        expected.sort();
        let mut found = names(directory.path());
        found.sort();
        assert_eq!(found, expected);
        drop(lock);
        replace_file(&beside("numbers.prom"), "whole\n").unwrap();
        assert!(!names(directory.path()).contains(&new('b')));
        assert!(is_name_of_new(&name_of_new("numbers.prom", &token().unwrap()), "numbers.prom"));
    }

    #[test]
    fn writers_at_the_same_time_leave_one_whole_file_and_nothing_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("numbers.prom");
        let content = |writer: usize| writer.to_string().repeat(100_000);
        let together = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let (path, together, content) = (&path, &together, content(writer));
                scope.spawn(move || {
                    together.wait();
                    for _ in 0..50 {
                        replace_file(path, &content).unwrap();
                        let read = fs::read_to_string(path).unwrap();
                        assert!(read.len() == content.len() && read.bytes().all(|byte| byte == read.as_bytes()[0]));
                    }
                });
            }
        });
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
