//! Prints, once, what a user should know about the store: what is waited for (a locked SQLite store, and which process holds the
//! lock; a server that is away), and which settings are invalid.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::error::StoreError;
use taskqueue_host::files::beside;
use taskqueue_host::files::lock_holders::{LockHolder, flock_holder, write_lock_holder};

/// A shorter wait is not reported.
const SILENCE: Duration = Duration::from_secs(1);
/// The byte of the index of the write-ahead log that a writer locks.
const WAL_WRITE_BYTE: u64 = 120;

/// The warnings of the last call of [`warn_of`].
static PRINTED: Mutex<Vec<String>> = Mutex::new(Vec::new());

type Printer = Box<dyn Fn(&str) + Send>;

static PRINTER: Mutex<Option<Printer>> = Mutex::new(None);
/// Whether the present outage of the server was announced. Several connections of this process notice it.
static IS_OUTAGE_ANNOUNCED: AtomicBool = AtomicBool::new(false);

/// Sets the function that prints waits and invalid settings; without one, nothing is printed.
pub fn print_notices_with(print: impl Fn(&str) + Send + 'static) {
    *PRINTER.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(print));
}

/// Whether a wait was announced.
#[derive(Default)]
pub(crate) struct WaitNotice {
    is_given: bool,
}

impl WaitNotice {
    /// Announces the wait for this store if it has lasted long enough.
    pub(crate) fn after(&mut self, waited: Duration, store: &Path) {
        self.announce(waited, store, || format!("{} has locked it", or_another(holder_words(store))));
    }

    /// Announces the wait for the lock file beside this store if it has lasted long enough.
    pub(crate) fn after_lock_file(&mut self, waited: Duration, store: &Path, file: &Path) {
        self.announce(waited, store, || format!("{} has locked {}", lock_file_holder(file), file.display()));
    }

    fn announce(&mut self, waited: Duration, store: &Path, why: impl FnOnce() -> String) {
        if self.is_given || waited < SILENCE {
            return;
        }
        self.is_given = true;
        print(&format!("waiting for the store {}: {}", store.display(), why()));
    }
}

/// Announces that a lost connection is being replaced, once in each outage, if this has lasted long enough.
pub(crate) fn announce_outage(lasted: Duration, error: &StoreError) {
    if lasted >= SILENCE && !IS_OUTAGE_ANNOUNCED.swap(true, Ordering::Relaxed) {
        print(&format!("{error}; retrying"));
    }
}

/// Prints those of these warnings that the last call did not have. They are about the store and repeated by each of its readers.
pub(crate) fn warn_of(texts: &[String]) {
    let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    texts.iter().filter(|text| !printed.contains(text)).for_each(|text| print(text));
    *printed = texts.to_vec();
}

/// The next outage will be announced again.
pub(crate) fn end_outage() {
    IS_OUTAGE_ANNOUNCED.store(false, Ordering::Relaxed);
}

fn print(text: &str) {
    if let Some(print) = PRINTER.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
        print(text);
    }
}

/// Returns `process 1234 (sqlite3)`: the process that blocks writes to this store, if it can be found.
pub(crate) fn holder_words(store: &Path) -> Option<String> {
    let holder = write_lock_holder(&beside(store, "-shm"), WAL_WRITE_BYTE, WAL_WRITE_BYTE)
        .or_else(|| write_lock_holder(store, 0, u64::MAX))?;
    Some(words(&holder))
}

/// Returns the process that holds a lock file, or `another process` if it cannot be found.
pub(crate) fn lock_file_holder(file: &Path) -> String {
    or_another(flock_holder(file).as_ref().map(words))
}

/// Returns the holder, or `another process` if it is unknown.
pub(crate) fn or_another(holder: Option<String>) -> String {
    holder.unwrap_or_else(|| "another process".to_owned())
}

fn words(LockHolder { process_id, program }: &LockHolder) -> String {
    if program.is_empty() { format!("process {process_id}") } else { format!("process {process_id} ({program})") }
}
