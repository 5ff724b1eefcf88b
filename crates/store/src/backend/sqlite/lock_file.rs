//! The lock file beside a SQLite store: one process at a time creates or migrates the store.

use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::backend::notices::{WaitNotice, lock_file_holder};
use crate::{StoreError, StoreResult};
use taskqueue_host::files::beside;
use taskqueue_host::files::lock::FileLock;

/// Locks `STORE.lock` until the value is dropped or the process dies. Announces a wait of more than a second.
///
/// # Errors
/// [`StoreError::Busy`] if another process held the lock the whole time; otherwise the error that `other` makes of a problem with
/// the file.
pub(crate) fn acquire(
    store: &Path,
    wait: Duration,
    other: impl FnOnce(&std::io::Error) -> StoreError,
) -> StoreResult<FileLock> {
    let file = beside(store, ".lock");
    let (started, mut notice) = (Instant::now(), WaitNotice::default());
    let locked = FileLock::acquire_watched(&file, wait, &mut || {
        notice.after_lock_file(started.elapsed(), store, &file);
    });
    locked.map_err(|error| match error.kind() {
        ErrorKind::TimedOut => {
            let (holder, secs) = (lock_file_holder(&file), wait.as_secs());
            StoreError::Busy(format!("{holder} has locked {} for {secs} seconds", file.display()))
        }
        _ => other(&error),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_never_released_is_busy() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("tasks.db");
        let other = |error: &std::io::Error| StoreError::BadAddress(error.to_string());
        let _held = acquire(&store, Duration::ZERO, other).unwrap();
        let error = acquire(&store, Duration::ZERO, other).unwrap_err();
        let expected =
            format!("the database is busy: another process has locked {}.lock for 0 seconds", store.display());
        assert_eq!(error.to_string(), expected);
    }
}
