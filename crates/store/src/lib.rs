//! The database: tables, migrations and every statement. It guards changes (every change of a status is a compare-and-set), but
//! makes no decisions. It returns domain types.

#[macro_use]
extern crate taskqueue_host;

mod backend;
pub mod base;
pub mod connection;
mod error;
pub mod insert;
pub mod reading;
pub mod rules;
mod runs;
mod task_messages;
mod tasks;
mod transitions;
pub mod upkeep;

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use self::backend::AnyConnection;
pub use self::backend::kept_log::keep_sqlite_logs;
pub use self::backend::pooler::Pooler;
use self::backend::pooler::{LocalSettings, keep_statements, with_local_settings};
pub use self::backend::{DatabaseUrl, Engine};
pub use self::connection::change_listener::ChangeListener;
pub use self::connection::connecting::ConnectWait;
pub use self::connection::health::Symptom;
pub use self::connection::lock_notice::announce_locked_stores;
use self::connection::lock_notice::{LockNotice, holder_words};
pub use self::connection::migrate::{Migration, MigrationBegun, MigrationReport, all_pending};
use self::connection::open_file::OpenFile;
use self::error::Repeat;
pub use self::error::{ConnectFailure, DatabaseError, StoreError, StoreResult};
pub use self::insert::callers::{CallersConnection, callers_now, callers_settings, insert_in};
pub use self::insert::queueing::{BatchNeeds, EachPart};
pub use self::insert::transfer::{ExportedTask, Imported, TransferredTask};
pub use self::insert::unique::Holder;
use self::insert::unique::look_again;
pub use self::reading::candidates::{ScheduleName, WhichRuns};
pub use self::reading::event_log::{Event, EventFilter, is_narrow_range};
pub use self::reading::failures::{FailedTask, GivenUp};
pub use self::reading::metrics::{TaskBacklog, WaitingRuns};
pub use self::reading::queues::ClassCounts;
pub use self::reading::status::{Counted, TaskCounts, TaskFilter, TaskPage};
pub use self::rules::classes::ClassHold;
pub use self::rules::key_slots::KeyUse;
pub use self::rules::leases::{Renewal, RenewalRequest};
pub use self::rules::pauses::NewPause;
pub use self::rules::runners::{NewRunner, Registration};
pub use self::runs::{RunRef, RunReport};
pub use self::task_messages::{Envelope, MESSAGE_TO_TASK, Recipient};
use self::transitions::LowWater;
pub use self::transitions::{
    Advanced, Author, CancelAnswer, Claim, Crash, EditAnswer, EndCondition, Ended, Lateness, Loss, ManyClaimed,
    NextWork, OutsideClaim, OutsideRun, Restart, RestartAnswer, RunEnd, ScheduleAnswer, ScheduleChange, SpecificClaim,
};
use self::upkeep::audit::AuditSwitch;
pub use self::upkeep::audit::Origin;
pub use self::upkeep::cleanup::CleanupNeeds;
pub use self::upkeep::events::NewEvent;
pub use self::upkeep::notices::{NewNotice, NoticeChoice, TakenNotices};
pub use self::upkeep::prunable::PruneVerdict;
pub use self::upkeep::prune::{PrunePlace, PruneRule, PruneWindow, Pruned};
use taskqueue_domain::settings::Settings;
use taskqueue_domain::time::retention::KeepOfClass;
use taskqueue_host::net::patience::{LAST_ANSWER, Patience};
use taskqueue_host::net::sockets::LibrarySocket;
use taskqueue_host::random::spread;

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
    conn: AnyConnection,
    url: DatabaseUrl,
    /// The file of a SQLite store; new connections must use the same file.
    file: Option<OpenFile>,
    /// Whether a SQLite store is read without its log: its disk cannot be written, or there is no file yet.
    is_frozen: bool,
    /// Whether the server has accepted a write: one that no longer does is being replaced, one that never did is a standby.
    has_written: bool,
    /// Set if it listens for cancelled runs: the socket to poll, if there is one.
    listening: Option<Option<LibrarySocket>>,
    /// Returns true if the caller can no longer wait for an answer.
    is_hurried: Option<Box<dyn Fn() -> bool + Send>>,
    /// Whether current work should wait for space on a full disk.
    waits_for_room: bool,
    /// Whether waits for a locked store are not printed.
    waits_silently: bool,
    /// The settings of each transaction, if the session must not be changed.
    local_settings: LocalSettings,
    /// The identity of this process for events.
    origin: Origin,
    audit: AuditSwitch,
    /// The settings, and when they were read.
    recent_settings: Option<(Settings, Instant)>,
    /// The database's clock, and when it was queried.
    recent_clock: Option<(DateTime<Utc>, Instant)>,
    /// How many closures were run on this connection, counted up to a limit.
    uses: u32,
    /// How far this connection has advanced in the due tasks.
    low_water: LowWater,
    /// The retention stated by the classes of this host; `None` if none states any.
    keep_of: Option<KeepOfClass>,
}

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
        connection::migrate::ensure_current(&mut store)?;
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
        connection::migrate::require_current(&mut store)?;
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
        connection::migrate::require_current(&mut store)?;
        Ok(Some((store, warning)))
    }

    /// Creates an empty SQLite store in memory, to read in place of the file at this address, which does not exist yet.
    ///
    /// # Errors
    /// [`StoreError::Migration`]
    pub fn open_empty(url: &DatabaseUrl) -> StoreResult<Self> {
        let mut store = Self::with_connection(backend::connect_to_memory(url)?, url, None);
        store.is_frozen = true;
        connection::migrate::migrate_memory(&mut store)?;
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

    fn with_connection(conn: AnyConnection, url: &DatabaseUrl, listening: Option<Option<LibrarySocket>>) -> Self {
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
            audit: AuditSwitch::default(),
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
    fn read<T>(&mut self, mut work: impl FnMut(&mut AnyConnection) -> StoreResult<T>) -> StoreResult<T> {
        self.repeat(&mut work)
    }

    /// Runs a closure in one write transaction. It may run more than once and must have the same effect each time.
    fn write<T>(&mut self, mut work: impl FnMut(&mut AnyConnection) -> StoreResult<T>) -> StoreResult<T> {
        let written = self.repeat(&mut |conn| backend::write_transaction(conn, &mut work))?;
        self.has_written = true;
        Ok(written)
    }

    /// Same as [`Store::write`], under the exclusive lock on TaskQueueRuns. `keeps_events` is true if the closure writes events.
    fn claim_write<T>(
        &mut self,
        keeps_events: bool,
        mut work: impl FnMut(&mut AnyConnection) -> StoreResult<T>,
    ) -> StoreResult<T> {
        // A manual change of the tables may cancel a task at this moment. Another task may then take its key before the claim
        // makes it live again. The repetition finds it cancelled.
        let written =
            look_again(|| self.repeat(&mut |conn| backend::claim_transaction(conn, keeps_events, &mut work)))?;
        self.has_written = true;
        Ok(written)
    }

    /// Same as [`Store::claim_write`], concurrently with other claims of this kind, for work that needs no exact counts.
    fn shared_claim_write<T>(&mut self, mut work: impl FnMut(&mut AnyConnection) -> StoreResult<T>) -> StoreResult<T> {
        let written = look_again(|| self.repeat(&mut |conn| backend::shared_claim_transaction(conn, &mut work)))?;
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

    /// Disables messages about waits for a locked store.
    pub fn wait_silently(&mut self) {
        self.waits_silently = true;
    }

    fn repeat<T>(&mut self, work: &mut dyn FnMut(&mut AnyConnection) -> StoreResult<T>) -> StoreResult<T> {
        let started = Instant::now();
        let (mut repeats, mut reconnections, mut few) = (0, 0, 0);
        let (mut unreachable, mut notice) = (None, LockNotice::default());
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

/// Grows from about 5 ms to half a second, and is random so that processes waiting for each other differ.
fn pause(repeats: u32) -> Duration {
    let ceiling_millis = 5_u64 << repeats.min(7);
    Duration::from_millis(ceiling_millis / 2 + u64::from(spread()) % ceiling_millis)
}
