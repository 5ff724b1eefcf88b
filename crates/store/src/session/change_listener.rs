//! Listens for new work or finished tasks, if the engine supports it, and wakes a sleeping caller. Notifications are hints: some
//! are false and some are missing, so every listener also polls from time to time.

use std::os::fd::{AsFd as _, BorrowedFd};

use crate::address::url::Engine;
use crate::backend;
use crate::base::connection::AnyConnection;
use crate::{DatabaseUrl, Store, StoreResult};
use taskqueue_host::files::file_watch::FileWatch;
use taskqueue_host::net::sockets::LibrarySocket;

/// Listens as long as it exists.
pub struct ChangeListener {
    source: ChangeSource,
}

enum ChangeSource {
    /// A listening connection, and its socket.
    Connection(Box<AnyConnection>, LibrarySocket),
    /// The file that every writer of the store writes.
    File(FileWatch),
}

impl ChangeListener {
    /// Starts to listen for work to claim. Returns `None` if the engine has no notifications, or no resources are available.
    #[must_use]
    pub fn listen(url: &DatabaseUrl) -> Option<Self> {
        Self::begin(url, backend::WORK_CHANNEL)
    }

    /// Starts to listen for finished tasks, and makes other processes send these notifications. `None` as for
    /// [`ChangeListener::listen`].
    #[must_use]
    pub fn listen_for_ends(url: &DatabaseUrl) -> Option<Self> {
        let mut listener = Self::begin(url, backend::END_CHANNEL)?;
        listener.listen_again().ok()?;
        Some(listener)
    }

    fn begin(url: &DatabaseUrl, channel: &str) -> Option<Self> {
        let source = match url.engine() {
            // Differs by necessity: these engines have no notifications.
            Engine::Mysql => return None,
            Engine::Postgres => match backend::connect_listening(url, &[channel]).ok()? {
                (conn, Some(socket)) => ChangeSource::Connection(Box::new(conn), socket),
                (_, None) => return None,
            },
            Engine::Sqlite => ChangeSource::File(FileWatch::begin(&backend::log_path(url)?).ok()?),
        };
        Some(Self { source })
    }

    /// Returns a descriptor that is readable when there are notifications.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            ChangeSource::Connection(_, socket) => socket.as_fd(),
            ChangeSource::File(watch) => watch.as_fd(),
        }
    }

    /// Returns true if there were notifications since the last call.
    ///
    /// # Errors
    /// The connection is lost; no more notifications will arrive.
    pub fn has_changed(&mut self) -> StoreResult<bool> {
        match &mut self.source {
            ChangeSource::Connection(conn, _) => Ok(backend::was_notified(conn)?),
            ChangeSource::File(watch) => Ok(watch.was_written()),
        }
    }

    /// Receives nothing until [`ChangeListener::listen_again`], so that no process sends notifications in vain.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn rest(&mut self) -> StoreResult<()> {
        match &mut self.source {
            ChangeSource::Connection(conn, _) => Ok(backend::ignore_ends(conn)?),
            ChangeSource::File(_) => Ok(()),
        }
    }

    /// Receives notifications of finished tasks again.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn listen_again(&mut self) -> StoreResult<()> {
        match &mut self.source {
            ChangeSource::Connection(conn, _) => Ok(backend::listen_for_ends(conn)?),
            ChangeSource::File(_) => Ok(()),
        }
    }
}

impl Store {
    /// Notifies sleeping workers that there may be work to claim. Must not be called in the transaction that creates the work: it
    /// would make all other notifying transactions wait for its commit.
    ///
    /// # Errors
    /// The database could not be queried. Workers find the work later by polling.
    pub fn tell_of_work(&mut self) -> StoreResult<()> {
        Ok(backend::notify(&mut self.conn, backend::WORK_CHANNEL, "")?)
    }

    /// Returns true if waiters can be notified of finished tasks on this engine.
    #[must_use]
    pub const fn supports_finish_notifications(&self) -> bool {
        backend::supports_finish_notifications(self.url.engine())
    }

    /// Notifies waiters that tasks have finished, and returns true if there were any. Without waiters, this costs one query. Must
    /// not be called in the transaction that ends the tasks, as for [`Store::tell_of_work`].
    ///
    /// # Errors
    /// The database could not be queried. Waiters find the ends later by polling.
    pub fn notify_finished(&mut self) -> StoreResult<bool> {
        Ok(backend::notify_finished(&mut self.conn)?)
    }
}
