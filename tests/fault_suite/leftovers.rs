//! What is left on the machine after a trial: processes of its runs, outcomes on the disk, locks.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Returns live processes whose environment contains one of these run tokens, and coprocesses with this log, which contain
/// none.
pub fn processes(tokens: &[String], effects: &Path) -> Vec<String> {
    let effects = format!("EFFECTS={}", effects.display());
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let variables = environment(pid);
        let token = variables.iter().find_map(|variable| variable.strip_prefix("TASKQUEUE_RUN_TOKEN="));
        let is_of_run = token.is_some_and(|token| tokens.iter().any(|ours| ours == token));
        if is_of_run || is_coprocess(&variables) && variables.contains(&effects) {
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push(format!("{pid}: {}", String::from_utf8_lossy(&command).replace('\0', " ")));
        }
    }
    found
}

/// Returns the coprocesses that this process has started.
pub fn coprocesses_of(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = threads.flat_map(|thread| {
        let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        children.split_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<i32>>()
    });
    children.filter(|child| is_coprocess(&environment(*child))).collect()
}

fn is_coprocess(variables: &[String]) -> bool {
    variables.iter().any(|variable| variable == "TASKQUEUE_PROTOCOL=coprocess")
}

/// Returns the environment of a process; empty if it cannot be read.
fn environment(pid: i32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    bytes.split(|byte| *byte == 0).map(|variable| String::from_utf8_lossy(variable).into_owned()).collect()
}

/// Returns spool files with outcomes or marks, and files that a process has locked.
pub fn files(home: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for path in candidates(home) {
        let Ok(file) = File::open(&path) else { continue };
        // The next worker uses the file that shows which worker does the housekeeping.
        let is_turn = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("turn-"));
        let is_spool = path.parent().is_some_and(|parent| parent.ends_with("spool")) && !is_turn;
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
