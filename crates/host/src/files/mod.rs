//! Files: permissions, locks, watches, and files that survive a crash.

pub mod append_file;
pub mod disk;
pub mod file_checks;
pub mod file_watch;
pub mod lines;
pub mod lock;
pub mod lock_holders;
pub mod replace_file;
pub mod scripts;
pub mod spool;
pub mod spooled_lines;
pub mod trusted_path;

use std::path::{Path, PathBuf};

/// Returns the file in the same directory whose name is that of this file with a suffix.
#[must_use]
pub fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
