//! A store that is connected: reads and transactions on it, repeated where that can help.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use diesel::result::QueryResult;

use crate::address::pooler::Pooler;
use crate::address::url::DatabaseUrl;
use crate::backend;
use crate::backend::local_settings::{LocalSettings, keep_statements, with_local_settings};
use crate::backend::notices::{WaitNotice, announce_outage, end_outage, holder_words};
use crate::base::connection::AnyConnection;
use crate::base::low_water::LowWater;
use crate::error::{ConnectFailure, Repeat, StoreError, StoreResult};
use crate::session::connecting::pause;
use crate::session::key_race::repeat_if_key_is_taken;
use crate::session::open_file::OpenFile;
use crate::session::origin::Origin;
use taskqueue_domain::run::retention::KeepOfClass;
use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::choosing::visible_tasks::VisibleTasks;
use taskqueue_host::net::patience::{LAST_ANSWER, Patience};
use taskqueue_host::net::sockets::LibrarySocket;

/// How long a closure is repeated while the database is busy or unreachable. Long enough for a restart of the server, because the
/// closure may record the end of a long run.
const BUSY_LIMIT: Duration = Duration::from_secs(60);
/// How often a closure is repeated after an error without a known cause, or with a new connection.
const FEW_TIMES: u32 = 6;

/// The number of uses below which a connection counts as one of a short command.
const USES_OF_A_COMMAND: u32 = 16;

/// Replaces the client library's message, which blames the server for the end of the connection.
const NO_ANSWER: &str = "timeout: the server did not answer a statement in time, so the connection was closed";

/// A store that is ready for use: connected, and with the tables that this program needs.
pub struct Store {
    pub(crate) conn: AnyConnection,
    pub(crate) url: DatabaseUrl,
    /// The file of a SQLite store; new connections must use the same file.
    pub(crate) file: Option<OpenFile>,
    /// Whether a SQLite store is read without its log: its disk cannot be written, or there is no file yet.
    pub(crate) is_frozen: bool,
    /// Whether the server has accepted a write. A server that accepted one and now refuses is being replaced; a server that never
    /// accepted one is a standby.
    pub(crate) has_written: bool,
    /// Set if it listens for cancelled runs: the socket to poll, if there is one.
    pub(crate) listening: Option<Option<LibrarySocket>>,
    /// Returns true if the caller can no longer wait for an answer.
    pub(crate) is_hurried: Option<Box<dyn Fn() -> bool + Send>>,
    /// Whether current work should wait for space on a full disk.
    pub(crate) waits_for_room: bool,
    /// Whether waits for a locked store or a server are not printed.
    pub(crate) waits_silently: bool,
    /// The settings of each transaction, if the session must not be changed.
    pub(crate) local_settings: LocalSettings,
    /// The identity of this process for events.
    pub(crate) origin: Origin,
    /// Which tasks exist for the caller.
    pub(crate) visible: VisibleTasks,
    /// Whether transitions are kept as events, and when this was read.
    pub(crate) audit: Option<(bool, Instant)>,
    /// The settings, and when they were read.
    pub(crate) recent_settings: Option<(Settings, Instant)>,
    /// The database's clock, and when it was queried.
    pub(crate) recent_clock: Option<(DateTime<Utc>, Instant)>,
    /// How many closures were run on this connection, counted up to a limit.
    pub(crate) uses: u32,
    /// How far this connection has advanced in the due tasks.
    pub(crate) low_water: LowWater,
    /// The retention stated by the classes of this host; `None` if none states any.
    pub(crate) keep_of: Option<KeepOfClass>,
}

impl Store {
    pub(crate) fn with_connection(
        conn: AnyConnection,
        url: &DatabaseUrl,
        listening: Option<Option<LibrarySocket>>,
    ) -> Self {
        Self {
            conn,
            url: url.clone(),
            file: OpenFile::of(url),
            is_frozen: false,
            has_written: false,
            listening,
            is_hurried: None,
            waits_for_room: false,
            waits_silently: false,
            local_settings: LocalSettings::default(),
            origin: Origin::default(),
            visible: VisibleTasks::default(),
            audit: None,
            recent_settings: None,
            recent_clock: None,
            uses: 0,
            low_water: LowWater::default(),
            keep_of: None,
        }
    }

    /// Makes tasks that end use the retention stated by their classes.
    pub fn keep_by_class(&mut self, keep_of: Option<KeepOfClass>) {
        self.keep_of = keep_of;
    }

    /// Returns the socket that becomes readable when a run is cancelled or a message is sent, if the engine has notifications.
    #[must_use]
    pub fn listening_socket(&self) -> Option<&LibrarySocket> {
        self.listening.as_ref().and_then(Option::as_ref)
    }

    /// Returns true if it was notified of a cancelled run or a message since the last call. Sends no statement.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn was_notified_of_cancel(&mut self) -> StoreResult<bool> {
        Ok(backend::was_notified(&mut self.conn)?)
    }

    /// Returns its address.
    #[must_use]
    pub const fn url(&self) -> &DatabaseUrl {
        &self.url
    }

    /// Returns the limit on waits for its answers, on this connection and all others made with its address.
    #[must_use]
    pub const fn patience(&self) -> &Patience {
        self.url.patience()
    }

    /// Returns the version of the database, for people.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn server_version(&mut self) -> StoreResult<String> {
        self.read(|conn| Ok(backend::server_version(conn)?))
    }

    /// Runs a read-only closure; it may run more than once.
    pub(crate) fn read<T>(&mut self, mut work: impl FnMut(&mut AnyConnection) -> StoreResult<T>) -> StoreResult<T> {
        self.repeat(&mut work)
    }

    /// Same as [`Store::read`], for a closure that loads rows. Returns what `make` makes of each.
    pub(crate) fn read_each<R, T>(
        &mut self,
        make: impl Fn(R) -> T,
        mut load: impl FnMut(&mut AnyConnection) -> QueryResult<Vec<R>>,
    ) -> StoreResult<Vec<T>> {
        Ok(self.read(|conn| Ok(load(conn)?))?.into_iter().map(make).collect())
    }

    /// Same as [`Store::read`], with all statements of the closure in one snapshot of the store.
    pub(crate) fn read_snapshot<T>(
        &mut self,
        mut work: impl FnMut(&mut AnyConnection) -> StoreResult<T>,
    ) -> StoreResult<T> {
        self.repeat(&mut |conn| backend::snapshot_transaction(conn, &mut work))
    }

    /// Runs a closure in one write transaction. It may run more than once and must have the same effect each time.
    pub(crate) fn write<T>(&mut self, mut work: impl FnMut(&mut AnyConnection) -> StoreResult<T>) -> StoreResult<T> {
        let written = self.repeat(&mut |conn| backend::write_transaction(conn, &mut work))?;
        self.has_written = true;
        Ok(written)
    }

    /// Same as [`Store::write`], in one attempt: for a note that may be missed.
    pub(crate) fn write_now<T>(&mut self, work: impl FnMut(&mut AnyConnection) -> StoreResult<T>) -> StoreResult<T> {
        let is_hurried = self.is_hurried.replace(Box::new(|| true));
        let written = self.write(work);
        self.is_hurried = is_hurried;
        written
    }

    /// Same as [`Store::write`], under the exclusive lock on TaskQueueRuns. `keeps_events` is true if the closure writes events.
    pub(crate) fn claim_write<T>(
        &mut self,
        keeps_events: bool,
        mut work: impl FnMut(&mut AnyConnection) -> StoreResult<T>,
    ) -> StoreResult<T> {
        // A manual change of the tables may cancel a task at this moment. Another task may then take its key before the claim
        // makes it live again. The repetition finds it cancelled.
        let written = repeat_if_key_is_taken(|| {
            self.repeat(&mut |conn| backend::claim_transaction(conn, keeps_events, &mut work))
        })?;
        self.has_written = true;
        Ok(written)
    }

    /// Same as [`Store::claim_write`], concurrently with other claims of this kind, for work that needs no exact counts.
    pub(crate) fn shared_claim_write<T>(
        &mut self,
        mut work: impl FnMut(&mut AnyConnection) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let written =
            repeat_if_key_is_taken(|| self.repeat(&mut |conn| backend::shared_claim_transaction(conn, &mut work)))?;
        self.has_written = true;
        Ok(written)
    }

    /// Optimizes later statements for workers, which repeatedly access few rows of large tables.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn prefer_lookups(&mut self) -> StoreResult<()> {
        self.local_settings.prefers_lookups = true;
        self.set_lookups()
    }

    /// Stops repeating once `is_hurried` returns true, because this process was asked to end.
    pub fn give_up_when(&mut self, is_hurried: impl Fn() -> bool + Send + 'static) {
        self.is_hurried = Some(Box::new(is_hurried));
    }

    /// Sets whether later work is repeated on a full disk as for an unreachable server. A command that can be repeated by the
    /// user should get its error at once; the end of a run happens only once.
    pub fn wait_for_room(&mut self, waits: bool) {
        self.waits_for_room = waits;
    }

    /// Disables messages about waits for a locked store or a server.
    pub fn wait_silently(&mut self) {
        self.waits_silently = true;
    }

    fn repeat<T>(&mut self, work: &mut dyn FnMut(&mut AnyConnection) -> StoreResult<T>) -> StoreResult<T> {
        let started = Instant::now();
        let (mut repeats, mut reconnections, mut few) = (0, 0, 0);
        let (mut unreachable, mut notice) = (None, WaitNotice::default());
        loop {
            // Before each claim and each end, and before a poll without results.
            if let Some(file) = &self.file {
                file.check(&self.url)?;
            }
            self.count_use();
            let done = with_local_settings(&mut self.conn, self.url.pooler(), &self.local_settings, work);
            let error = match done {
                Err(StoreError::Database(error)) => error,
                other => return other,
            };
            backend::forget_failed_statement(&mut self.conn);
            let repeat = backend::classify(self.url.engine(), &error);
            let may_repeat = match repeat {
                Repeat::Never => false,
                Repeat::Yes => started.elapsed() < BUSY_LIMIT,
                Repeat::FewTimes => few < FEW_TIMES,
                Repeat::AfterReconnect => reconnections < FEW_TIMES && started.elapsed() < BUSY_LIMIT,
                Repeat::AfterFailover => {
                    (self.has_written || reconnections < FEW_TIMES) && started.elapsed() < BUSY_LIMIT
                }
                Repeat::WhenRoom => self.waits_for_room && started.elapsed() < BUSY_LIMIT,
            };
            let has_to_end = self.url.patience().is_over() && started.elapsed() >= LAST_ANSWER;
            if !may_repeat || has_to_end || self.is_hurried.as_ref().is_some_and(|is_hurried| is_hurried()) {
                // If the disk is full, that is also why no connection could be made.
                let unreachable = unreachable.filter(|_| repeat != Repeat::WhenRoom);
                return Err(unreachable.unwrap_or_else(|| self.explain(error, repeat)));
            }
            if let Some(path) = self.url.path().filter(|_| repeat == Repeat::Yes && !self.waits_silently) {
                notice.after(started.elapsed(), &path);
            }
            std::thread::sleep(pause(repeats));
            repeats += 1;
            few += u32::from(repeat == Repeat::FewTimes);
            // Without space, a rollback may have failed too, which makes its connection unusable.
            if matches!(repeat, Repeat::AfterReconnect | Repeat::AfterFailover | Repeat::WhenRoom) {
                // A failed connection is handled like a failed statement: by the next repetition. Every host is tried each time,
                // because another one may have become the primary.
                unreachable = self.reconnect().err();
                match &unreachable {
                    None => end_outage(),
                    Some(error) if !self.waits_silently => announce_outage(started.elapsed(), error),
                    Some(_) => {}
                }
                reconnections += u32::from(unreachable.is_none() && repeat != Repeat::WhenRoom);
            }
        }
    }

    /// Counts a use of the connection, and keeps prepared statements after the first uses. A short command runs each of its
    /// queries once: preparing them first would double its round trips.
    fn count_use(&mut self) {
        if self.uses < USES_OF_A_COMMAND {
            self.uses += 1;
        } else if self.uses == USES_OF_A_COMMAND {
            self.uses += 1;
            keep_statements(&mut self.conn, self.url.pooler());
        }
    }

    fn reconnect(&mut self) -> StoreResult<()> {
        self.uses = 0;
        if self.listening.is_none() {
            self.conn = backend::connect(&self.url)?;
        } else {
            let (conn, socket) = backend::connect_listening(&self.url, backend::RUN_CHANNELS)?;
            (self.conn, self.listening) = (conn, Some(socket));
        }
        self.set_lookups()
    }

    fn set_lookups(&mut self) -> StoreResult<()> {
        if self.local_settings.prefers_lookups && !self.pooler().shares_sessions() {
            backend::prefer_lookups(&mut self.conn)?;
        }
        Ok(())
    }

    /// Returns what is known about a pooler between this connection and the server.
    #[must_use]
    pub fn pooler(&self) -> Pooler {
        self.url.pooler().pooler()
    }

    /// Returns the error for a person, when repeating has not helped.
    fn explain(&self, error: diesel::result::Error, repeat: Repeat) -> StoreError {
        let message = self.url.without_secrets(&error.to_string());
        let url = self.url.to_string();
        if message.contains("readonly database") || message.contains("read-only") {
            return StoreError::ReadOnly { url, message };
        }
        if message.contains("permission denied") || message.contains("command denied") {
            return StoreError::Forbidden { url, message };
        }
        match repeat {
            Repeat::Yes => StoreError::Busy(match self.url.path().and_then(|path| holder_words(&path)) {
                Some(holder) => format!("{message} by {holder}"),
                None => message,
            }),
            Repeat::AfterReconnect | Repeat::AfterFailover => {
                let message = if self.patience().has_cut() { NO_ANSWER.to_owned() } else { message };
                StoreError::Unreachable { url, message, failure: ConnectFailure::Other }
            }
            Repeat::WhenRoom => StoreError::Full { url, message },
            Repeat::Never | Repeat::FewTimes => StoreError::Database(error),
        }
    }
}
