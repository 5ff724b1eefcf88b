//! Opens a store: to work, to read only, or to migrate it.

use std::time::Duration;

use crate::address::url::DatabaseUrl;
use crate::backend;
use crate::error::{StoreError, StoreResult};
use crate::session::connecting::ConnectWait;
use crate::session::migrate;
use crate::session::store::Store;

impl Store {
    /// Connects. A SQLite store is created and migrated automatically; a server's tables must have been migrated.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`], [`StoreError::NotMigrated`], [`StoreError::NewerSchema`], [`StoreError::BadAddress`],
    /// [`StoreError::ReadOnly`], [`StoreError::Forbidden`].
    pub fn open(url: &DatabaseUrl) -> StoreResult<Self> {
        Self::open_waiting(url, &ConnectWait::none())
    }

    /// Same as [`Store::open`], with retries of a connection that is temporarily refused.
    ///
    /// # Errors
    /// As for [`Store::open`].
    pub fn open_waiting(url: &DatabaseUrl, wait: &ConnectWait) -> StoreResult<Self> {
        let mut store = Self::connect_waiting(url, wait)?;
        migrate::ensure_current(&mut store)?;
        Ok(store)
    }

    /// Connects to an existing store only to read it, for a caller that waits at most about `limit`: creates, migrates, changes
    /// and repeats nothing.
    ///
    /// # Errors
    /// As for [`Store::open`]; also if a SQLite store does not exist or is not migrated.
    pub fn open_to_look(url: &DatabaseUrl, limit: Duration) -> StoreResult<Self> {
        let mut store = Self::with_connection(backend::connect_to_look(url, limit)?, url, None);
        store.local_settings.look_millis = Some(limit.as_millis());
        store.give_up_when(|| true);
        migrate::require_current(&mut store)?;
        Ok(store)
    }

    /// Connects to a SQLite store only to read its file, if its disk is full or read-only and it could not be opened with this
    /// error for that reason. Also returns a warning to print. Returns `None` if that is not the reason, and for servers.
    ///
    /// # Errors
    /// The file cannot be read, or lacks the tables that this program needs.
    pub fn open_frozen(url: &DatabaseUrl, error: &StoreError) -> StoreResult<Option<(Self, String)>> {
        let Some((conn, warning)) = backend::connect_frozen(url, error)? else { return Ok(None) };
        let mut store = Self::with_connection(conn, url, None);
        store.is_frozen = true;
        migrate::require_current(&mut store)?;
        Ok(Some((store, warning)))
    }

    /// Creates an empty SQLite store in memory, to read in place of the file at this address, which does not exist yet.
    ///
    /// # Errors
    /// [`StoreError::Migration`]
    pub fn open_empty(url: &DatabaseUrl) -> StoreResult<Self> {
        let mut store = Self::with_connection(backend::connect_to_memory(url)?, url, None);
        store.is_frozen = true;
        migrate::migrate_memory(&mut store)?;
        Ok(store)
    }

    /// Connects without checking the tables: for `migrate`.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`], [`StoreError::BadAddress`], [`StoreError::ReadOnly`].
    pub fn connect(url: &DatabaseUrl) -> StoreResult<Self> {
        Self::connect_waiting(url, &ConnectWait::none())
    }

    /// Same as [`Store::connect`], with retries of a connection that is temporarily refused.
    ///
    /// # Errors
    /// As for [`Store::connect`].
    pub fn connect_waiting(url: &DatabaseUrl, wait: &ConnectWait) -> StoreResult<Self> {
        Ok(Self::with_connection(wait.retry(|| backend::connect(url))?, url, None))
    }

    /// Same as [`Store::connect`]; also listens for cancelled runs and messages to tasks, if the engine has notifications.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`], [`StoreError::BadAddress`], [`StoreError::ReadOnly`].
    pub fn connect_listening(url: &DatabaseUrl) -> StoreResult<Self> {
        let (conn, socket) = backend::connect_listening(url, backend::RUN_CHANNELS)?;
        Ok(Self::with_connection(conn, url, Some(socket)))
    }
}
