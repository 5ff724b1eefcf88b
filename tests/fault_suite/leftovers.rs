//! What stays on the machine after a trial: processes of its runs, outcomes on the disk, locks.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Living processes whose environment names one of these run tokens.
pub fn processes(tokens: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
        let mut variables = environment.split(|byte| *byte == 0);
        let token = variables.find_map(|variable| variable.strip_prefix(b"TASKQUEUE_RUN_TOKEN="));
        let Some(token) = token else { continue };
        if tokens.iter().any(|ours| ours.as_bytes() == token) {
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push(format!("{pid}: {}", String::from_utf8_lossy(&command).replace('\0', " ")));
        }
    }
    found
}

/// Spool files that hold something, and files on which somebody holds a lock.
pub fn files(home: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for path in candidates(home) {
        let Ok(file) = File::open(&path) else { continue };
        let is_spool = path.parent().is_some_and(|parent| parent.ends_with("spool"));
        let size = file.metadata().map_or(0, |metadata| metadata.len());
        if is_spool && size > 0 {
            found.push(format!("{} with {size} bytes", path.display()));
        }
        if matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock)) {
            found.push(format!("a lock on {}", path.display()));
        }
    }
    found
}

fn candidates(home: &Path) -> Vec<PathBuf> {
    let list = |directory: PathBuf| fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let locks = list(home.to_owned()).filter(|path| path.extension().is_some_and(|extension| extension == "lock"));
    list(home.join(".local/state/taskqueue/spool")).chain(locks).collect()
}
