//! A copy of a SQLite store that is consistent even while other processes write the store.

use std::path::Path;
use std::time::Duration;

use crate::backend;
use crate::{Store, StoreResult};

impl Store {
    /// Copies a SQLite store into an empty file, as it was when the copy began. Other processes can write meanwhile.
    ///
    /// # Errors
    /// The store is on a server, or could not be read; the file could not be written. The file is then incomplete.
    pub fn copy_into(&mut self, file: &Path) -> StoreResult<()> {
        let patience = self.url().patience().clone();
        // A large store takes long to copy.
        let allowed = patience.set_limit(Duration::MAX);
        let copied = self.read(|conn| backend::health::copy_into(conn, file));
        patience.set_limit(allowed);
        copied
    }
}
