//! Checks whether the path of an open SQLite store still leads to its file.
//!
//! Processes that have a removed or replaced file open can still read and write it, but their writes are lost.

use std::fs::{Metadata, metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use crate::address::url::DatabaseUrl;
use crate::{StoreError, StoreResult};

/// Device and inode of a store when it was opened.
#[derive(Debug)]
pub(crate) struct OpenFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl OpenFile {
    /// Returns the file that was just opened; `None` for a server.
    pub(crate) fn of(url: &DatabaseUrl) -> Option<Self> {
        // The working directory may change later.
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
            // A file that cannot be examined now may be the same.
            Err(_) => return Ok(()),
        };
        Err(StoreError::Moved { url: url.to_string(), happened })
    }

    fn is(&self, found: &Metadata) -> bool {
        (found.dev(), found.ino()) == (self.device, self.inode)
    }
}
