//! Hears that there may be something to claim, where the engine can tell: a worker that sleeps is woken. News are hints: some
//! are false, and some that should come do not, so that whoever listens also looks from time to time.

use std::os::fd::{AsFd as _, BorrowedFd};

use super::backend::{self, AnyConnection, Engine};
use super::{DatabaseUrl, Store, StoreResult};
use crate::os::file_watch::FileWatch;
use crate::os::sockets::LibrarySocket;

/// Listens as long as it exists.
pub struct News {
    source: Source,
}

enum Source {
    /// A connection that listens, and its socket.
    Connection(Box<AnyConnection>, LibrarySocket),
    /// Whoever writes the store writes this file.
    File(FileWatch),
}

impl News {
    /// Begins to listen. `None` where the engine cannot tell, or where nothing can be had for it.
    #[must_use]
    pub fn listen(url: &DatabaseUrl) -> Option<Self> {
        let source = match url.engine() {
            // Differs by necessity: these have no way to tell anybody anything.
            Engine::Mysql => return None,
            Engine::Postgres => match backend::connect_listening(url, backend::WORK_CHANNEL).ok()? {
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
    pub fn heard(&mut self) -> StoreResult<bool> {
        match &mut self.source {
            Source::Connection(conn, _) => Ok(backend::was_told(conn)?),
            Source::File(watch) => Ok(watch.was_written()),
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
}
