//! Prints, once, that a locked SQLite store is waited for, and which process holds the lock.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use crate::os::lock_holders::{LockHolder, write_lock_holder};

/// A wait that is shorter is not mentioned.
const SILENCE: Duration = Duration::from_secs(1);
/// The byte of the index of the write-ahead log that a writer locks.
const WAL_WRITE_BYTE: u64 = 120;

static PRINTER: OnceLock<fn(&str)> = OnceLock::new();

/// Prints by this function, from now on, that a locked store is waited for; without one such a wait is silent.
pub fn announce_locked_stores(print: fn(&str)) {
    let _ = PRINTER.set(print);
}

/// Whether a wait was announced.
#[derive(Default)]
pub(super) struct LockNotice {
    is_given: bool,
}

impl LockNotice {
    /// Announces the wait for this store once it has lasted for long enough.
    pub(super) fn after(&mut self, waited: Duration, store: &Path) {
        if self.is_given || waited < SILENCE {
            return;
        }
        self.is_given = true;
        if let Some(print) = PRINTER.get() {
            let holder = holder_words(store).unwrap_or_else(|| "another process".to_owned());
            print(&format!("waiting for the store {}: {holder} has locked it", store.display()));
        }
    }
}

/// `process 1234 (sqlite3)`: who keeps others from writing to this store, where that can be seen.
pub(super) fn holder_words(store: &Path) -> Option<String> {
    let mut index = store.as_os_str().to_owned();
    index.push("-shm");
    let holder = write_lock_holder(Path::new(&index), WAL_WRITE_BYTE, WAL_WRITE_BYTE)
        .or_else(|| write_lock_holder(store, 0, u64::MAX))?;
    let LockHolder { process_id, program } = holder;
    Some(if program.is_empty() { format!("process {process_id}") } else { format!("process {process_id} ({program})") })
}
