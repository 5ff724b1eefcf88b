//! Hears that there may be something to claim, or that a task may have ended, where the engine can tell: who sleeps is woken.
//! Notifications are hints: some are false and some are missing, so every listener also polls from time to time.

use std::os::fd::{AsFd as _, BorrowedFd};

use crate::backend::{self, AnyConnection, Engine};
use crate::{DatabaseUrl, Store, StoreResult};
use taskqueue_host::files::file_watch::FileWatch;
use taskqueue_host::net::sockets::LibrarySocket;

/// Listens as long as it exists.
pub struct ChangeListener {
    source: Source,
}

enum Source {
    /// A connection that listens, and its socket.
    Connection(Box<AnyConnection>, LibrarySocket),
    /// Whoever writes the store writes this file.
    File(FileWatch),
}

impl ChangeListener {
    /// Begins to listen for something to claim. `None` where the engine cannot tell, or where nothing can be had for it.
    #[must_use]
    pub fn listen(url: &DatabaseUrl) -> Option<Self> {
        Self::begin(url, backend::WORK_CHANNEL)
    }

    /// Begins to listen for the ends of tasks, so that those who end some tell of it. `None` as of [`ChangeListener::listen`].
    #[must_use]
    pub fn listen_for_ends(url: &DatabaseUrl) -> Option<Self> {
        let mut listener = Self::begin(url, backend::END_CHANNEL)?;
        listener.listen_again().ok()?;
        Some(listener)
    }

    fn begin(url: &DatabaseUrl, channel: &str) -> Option<Self> {
        let source = match url.engine() {
            // Differs by necessity: these have no way to tell anybody anything.
            Engine::Mysql => return None,
            Engine::Postgres => match backend::connect_listening(url, &[channel]).ok()? {
                (conn, Some(socket)) => Source::Connection(Box::new(conn), socket),
                (_, None) => return None,
            },
            Engine::Sqlite => Source::File(FileWatch::begin(&backend::log_path(url)?).ok()?),
        };
        Some(Self { source })
    }

    /// Readable when there are news.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::Connection(_, socket) => socket.as_fd(),
            Source::File(watch) => watch.as_fd(),
        }
    }

    /// Whether there were news since the last question.
    ///
    /// # Errors
    /// The connection is gone; nothing more will be heard.
    pub fn has_changed(&mut self) -> StoreResult<bool> {
        match &mut self.source {
            Source::Connection(conn, _) => Ok(backend::was_notified(conn)?),
            Source::File(watch) => Ok(watch.was_written()),
        }
    }

    /// Receives nothing until [`ChangeListener::listen_again`], so that no process sends notifications in vain.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn rest(&mut self) -> StoreResult<()> {
        match &mut self.source {
            Source::Connection(conn, _) => Ok(backend::ignore_ends(conn)?),
            Source::File(_) => Ok(()),
        }
    }

    /// Hears of ends again, from now on.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn listen_again(&mut self) -> StoreResult<()> {
        match &mut self.source {
            Source::Connection(conn, _) => Ok(backend::hear_of_ends(conn)?),
            Source::File(_) => Ok(()),
        }
    }
}

impl Store {
    /// Tells workers that sleep that there may be something to claim. Not in the transaction that brings it about: whoever
    /// tells makes all others that tell wait for his commit.
    ///
    /// # Errors
    /// The database could not be asked. Workers find it by themselves, later.
    pub fn tell_of_work(&mut self) -> StoreResult<()> {
        Ok(backend::tell_of_work(&mut self.conn)?)
    }

    /// Whether there is somebody to be told of ends, at times.
    #[must_use]
    pub const fn supports_finish_notifications(&self) -> bool {
        backend::supports_finish_notifications(self.url.engine())
    }

    /// Tells those who wait for the end of a task that some have ended. Where nobody waits, nobody is told, and that costs one
    /// question. Whether somebody does. Not in the transaction of the ends, as of [`Store::tell_of_work`].
    ///
    /// # Errors
    /// The database could not be asked. Who waits finds it by itself, later.
    pub fn notify_finished(&mut self) -> StoreResult<bool> {
        Ok(backend::notify_finished(&mut self.conn)?)
    }
}
