//! When each token was used last on this host: the modification time of an empty file. Its name is the digest of the token: a safe
//! name of a file, and another one for a token that replaces this one.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, SubsecRound as _, Utc};

use taskqueue_host::files::file_checks::{create_private_dir, may_write};

/// How often the use of a token is noted.
const NOTE_EVERY: Duration = Duration::from_secs(60);

/// The directory of the files.
pub struct TokenUses {
    directory: PathBuf,
    /// When this process noted each token last.
    noted: Mutex<HashMap<String, Instant>>,
}

impl TokenUses {
    /// Returns the uses that are noted in a directory.
    #[must_use]
    pub fn in_directory(directory: PathBuf) -> Self {
        Self { directory, noted: Mutex::default() }
    }

    /// Creates the directory if it does not exist.
    ///
    /// # Errors
    /// The directory cannot be created or written; the error names it.
    pub fn prepare(&self) -> io::Result<()> {
        let problem = match create_private_dir(&self.directory) {
            Ok(()) if may_write(&self.directory) => return Ok(()),
            Ok(()) => io::ErrorKind::PermissionDenied.into(),
            Err(error) => error,
        };
        Err(io::Error::new(problem.kind(), format!("{} cannot be written: {problem}", self.directory.display())))
    }

    /// Returns when the token with this digest was used last; up to a minute too early.
    #[must_use]
    pub fn last(&self, sha256: &str) -> Option<DateTime<Utc>> {
        let modified = fs::metadata(self.directory.join(sha256)).and_then(|file| file.modified()).ok()?;
        Some(DateTime::from(modified).trunc_subsecs(0))
    }

    /// Removes the file of a token that was removed.
    pub fn forget(&self, sha256: &str) {
        self.noted().remove(sha256);
        // A file that remains is never read again.
        let _ = fs::remove_file(self.directory.join(sha256));
    }

    /// Notes that the token with this digest is used now, on a thread that may block.
    pub(crate) fn note(self: &Arc<Self>, sha256: &str) {
        if self.is_due(sha256, Instant::now()) {
            let path = self.directory.join(sha256);
            // A request must not fail because of a full disk; the next minute tries again.
            tokio::task::spawn_blocking(move || File::create(path).is_ok());
        }
    }

    /// Returns true once in each interval.
    fn is_due(&self, sha256: &str, now: Instant) -> bool {
        let mut noted = self.noted();
        let is_due = noted.get(sha256).is_none_or(|at| now.saturating_duration_since(*at) >= NOTE_EVERY);
        if is_due {
            noted.insert(sha256.to_owned(), now);
        }
        is_due
    }

    fn noted(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_use_of_a_token_is_noted_once_a_minute() {
        let uses = TokenUses::in_directory(PathBuf::new());
        let begin = Instant::now();
        let at = |secs| begin + Duration::from_secs(secs);
        assert!(uses.is_due("ann", at(0)) && uses.is_due("bob", at(1)));
        assert!(!uses.is_due("ann", at(59)) && uses.is_due("ann", at(60)));
        assert!(!uses.is_due("ann", at(119)));
        uses.forget("ann");
        assert!(uses.is_due("ann", at(119)));
    }
}
