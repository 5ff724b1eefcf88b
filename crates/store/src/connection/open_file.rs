//! The file of a SQLite store that is open: whether its path still leads to it.
//!
//! A file that was removed or replaced can be read and written as before by those who have it open, and what they write
//! there is lost.

use std::fs::{Metadata, metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use crate::backend::DatabaseUrl;
use crate::{StoreError, StoreResult};

/// Device and inode of a store, as its path led to it when it was opened.
#[derive(Debug)]
pub(crate) struct OpenFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl OpenFile {
    /// Returns the file that has just been opened; `None` for a server.
    pub(crate) fn of(url: &DatabaseUrl) -> Option<Self> {
        // Later the working directory may be another one.
        let path = std::path::absolute(url.path()?).ok()?;
        let found = metadata(&path).ok()?;
        Some(Self { device: found.dev(), inode: found.ino(), path })
    }

    /// Checks that the path still leads to the file.
    ///
    /// # Errors
    /// [`StoreError::Moved`]
    pub(crate) fn check(&self, url: &DatabaseUrl) -> StoreResult<()> {
        let happened = match metadata(&self.path) {
            Ok(found) if self.is(&found) => return Ok(()),
            Ok(_) => "replaced by another file",
            Err(error) if error.kind() == io::ErrorKind::NotFound => "removed or moved away",
            // What cannot be examined at this moment may be the same.
            Err(_) => return Ok(()),
        };
        Err(StoreError::Moved { url: url.to_string(), happened })
    }

    fn is(&self, found: &Metadata) -> bool {
        (found.dev(), found.ino()) == (self.device, self.inode)
    }
}
