//! Finds a program in the PATH, as a shell does.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Returns the first executable file of this name in the absolute directories of `path`, a PATH. Returns `None` for a name with
/// a slash, which needs no search.
#[must_use]
pub fn find_in_path(name: &str, path: &OsStr) -> Option<PathBuf> {
    if name.is_empty() || name.contains('/') {
        return None;
    }
    let directories = std::env::split_paths(path).filter(|directory| directory.is_absolute());
    directories.map(|directory| directory.join(name)).find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    #[test]
    fn the_first_executable_file_of_the_path_is_found() {
        let places = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let [first, second, third] = places.each_ref().map(tempfile::TempDir::path);
        // A directory and a file that is not executable are not found.
        fs::create_dir(first.join("tool")).unwrap();
        for (place, mode) in [(second, 0o644), (third, 0o755)] {
            fs::write(place.join("tool"), "").unwrap();
            fs::set_permissions(place.join("tool"), Permissions::from_mode(mode)).unwrap();
        }
        let path = std::env::join_paths([first, second, Path::new("relative"), third]).unwrap();
        assert_eq!(find_in_path("tool", &path), Some(third.join("tool")));
        for name in ["", "other", "./tool", "/bin/sh"] {
            assert_eq!(find_in_path(name, &path), None, "{name}");
        }
    }
}
