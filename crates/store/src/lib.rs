//! The database: tables, migrations and every statement. It guards (every change of a status is a compare-and-set), it does not
//! decide. What it returns are types of the domain.

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

/// How long a closure is repeated while the database is busy, or while it cannot be reached any more: long enough for a
/// restart of the server, because what is to be recorded may be the end of a long run.
const BUSY_LIMIT: Duration = Duration::from_secs(60);
/// How often a closure is repeated after an error that the engine does not explain, or with a new connection.
const FEW_TIMES: u32 = 6;

/// So often a command uses its connection that is over soon.
const USES_OF_A_COMMAND: u32 = 16;

/// What is said in place of the client library's message, which takes the end of the connection for the server's deed.
const NO_ANSWER: &str = "timeout: the server did not answer a statement in time, so the connection was closed";

/// A store that is ready to be used: connected, and with the tables that this program needs.
pub struct Store {
    conn: AnyConnection,
    url: DatabaseUrl,
    /// The file of a SQLite store; a new connection is still to this one.
    file: Option<OpenFile>,
    /// Whether a SQLite store is read without its log: its disk cannot be written, or there is no file yet.
    is_frozen: bool,
    /// Whether the server took a write: one that does not any more is being replaced, one that never did is a standby.
    has_written: bool,
    /// Set where it listens for cancelled runs: what to wait at, if there is such a thing.
    listening: Option<Option<LibrarySocket>>,
    /// Whether whoever waits for an answer has no time any more.
    is_hurried: Option<Box<dyn Fn() -> bool + Send>>,
    /// Whether what is done now is worth the wait for room on a full disk.
    waits_for_room: bool,
    /// Whether a wait for a locked store is not printed.
    waits_silently: bool,
    /// What it sets in each transaction where it may set nothing in its session.
    local_settings: LocalSettings,
    /// Who this process is.
    origin: Origin,
    audit: AuditSwitch,
    /// With when they were read.
    recent_settings: Option<(Settings, Instant)>,
    /// The database's clock, and when it was asked.
    recent_clock: Option<(DateTime<Utc>, Instant)>,
    /// Closures that were run on this connection, as far as they are counted.
    uses: u32,
    /// How far this connection has come in the due tasks.
    low_water: LowWater,
    /// What the classes of this host state about how long their tasks are kept; `None` where none states anything.
    keep_of: Option<KeepOfClass>,
}

impl Store {
    /// Connects. A SQLite store is made and migrated by itself; a server's tables must have been migrated.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`], [`StoreError::NotMigrated`], [`StoreError::NewerSchema`], [`StoreError::BadAddress`],
    /// [`StoreError::ReadOnly`], [`StoreError::Forbidden`].
    pub fn open(url: &DatabaseUrl) -> StoreResult<Self> {
        Self::open_waiting(url, &ConnectWait::none())
    }

    /// The same, and retries a connection that is refused for now.
    ///
    /// # Errors
    /// Those of [`Store::open`].
    pub fn open_waiting(url: &DatabaseUrl, wait: &ConnectWait) -> StoreResult<Self> {
        let mut store = Self::connect_waiting(url, wait)?;
        connection::migrate::ensure_current(&mut store)?;
        Ok(store)
    }

    /// Connects to what is there only to read it, for somebody who waits for about so long and no longer: nothing is made,
    /// migrated, changed or repeated.
    ///
    /// # Errors
    /// Those of [`Store::open`]; a SQLite store that is not there, or not migrated yet, is one of them.
    pub fn open_to_look(url: &DatabaseUrl, limit: Duration) -> StoreResult<Self> {
        let mut store = Self::with_connection(backend::connect_to_look(url, limit)?, url, None);
        store.local_settings.look_millis = Some(limit.as_millis());
        store.give_up_when(|| true);
        connection::migrate::require_current(&mut store)?;
        Ok(store)
    }

    /// Connects to a SQLite store that could not be opened with this error because its disk is full or cannot be written, only
    /// to read it as its file is, with a warning to print; `None` where that is not the reason, and on a server.
    ///
    /// # Errors
    /// The file cannot be read, or has not the tables that this program needs.
    pub fn open_frozen(url: &DatabaseUrl, error: &StoreError) -> StoreResult<Option<(Self, String)>> {
        let Some((conn, warning)) = backend::connect_frozen(url, error)? else { return Ok(None) };
        let mut store = Self::with_connection(conn, url, None);
        store.is_frozen = true;
        connection::migrate::require_current(&mut store)?;
        Ok(Some((store, warning)))
    }

    /// Makes an empty SQLite store in memory, to read in place of the file at this address, which does not exist yet.
    ///
    /// # Errors
    /// [`StoreError::Migration`]
    pub fn open_empty(url: &DatabaseUrl) -> StoreResult<Self> {
        let mut store = Self::with_connection(backend::connect_to_memory(url)?, url, None);
        store.is_frozen = true;
        connection::migrate::migrate_memory(&mut store)?;
        Ok(store)
    }

    /// Connects without a look at the tables: for `migrate`.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`], [`StoreError::BadAddress`], [`StoreError::ReadOnly`].
    pub fn connect(url: &DatabaseUrl) -> StoreResult<Self> {
        Self::connect_waiting(url, &ConnectWait::none())
    }

    /// The same, and retries a connection that is refused for now.
    ///
    /// # Errors
    /// Those of [`Store::connect`].
    pub fn connect_waiting(url: &DatabaseUrl, wait: &ConnectWait) -> StoreResult<Self> {
        Ok(Self::with_connection(wait.retry(|| backend::connect(url))?, url, None))
    }

    /// The same, and listens for runs that are cancelled and for messages to tasks, where the engine can notify.
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

    /// From now on tasks that end are kept for as long as their classes state.
    pub fn keep_by_class(&mut self, keep_of: Option<KeepOfClass>) {
        self.keep_of = keep_of;
    }

    /// Where something arrives when a run is cancelled or a message sent, if the engine can notify.
    #[must_use]
    pub fn listening_socket(&self) -> Option<&LibrarySocket> {
        self.listening.as_ref().and_then(Option::as_ref)
    }

    /// Returns whether it was notified since the last call of a run that is cancelled or of a message. Sends no statement.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn was_notified_of_cancel(&mut self) -> StoreResult<bool> {
        Ok(backend::was_notified(&mut self.conn)?)
    }

    /// Where it is.
    #[must_use]
    pub const fn url(&self) -> &DatabaseUrl {
        &self.url
    }

    /// How long its answers are waited for, on this connection and on all others that are made with its address.
    #[must_use]
    pub const fn patience(&self) -> &Patience {
        self.url.patience()
    }

    /// The version of the database, for people.
    ///
    /// # Errors
    /// The database could not be asked.
    pub fn server_version(&mut self) -> StoreResult<String> {
        self.read(|conn| Ok(backend::server_version(conn)?))
    }

    /// Runs a closure that only reads; repeated like every other.
    fn read<T>(&mut self, mut work: impl FnMut(&mut AnyConnection) -> StoreResult<T>) -> StoreResult<T> {
        self.repeat(&mut work)
    }

    /// Runs a closure in one transaction that writes. It may run more than once and must then do the same again.
    fn write<T>(&mut self, mut work: impl FnMut(&mut AnyConnection) -> StoreResult<T>) -> StoreResult<T> {
        let written = self.repeat(&mut |conn| backend::write_transaction(conn, &mut work))?;
        self.has_written = true;
        Ok(written)
    }

    /// The same under the WRITE lock on TaskQueueRuns. Who asks says whether it keeps events.
    fn claim_write<T>(
        &mut self,
        keeps_events: bool,
        mut work: impl FnMut(&mut AnyConnection) -> StoreResult<T>,
    ) -> StoreResult<T> {
        // Of a task that somebody cancels in the tables at this very moment, another one may take the key before the claim
        // makes it live again: the next look sees that it is cancelled.
        let written =
            look_again(|| self.repeat(&mut |conn| backend::claim_transaction(conn, keeps_events, &mut work)))?;
        self.has_written = true;
        Ok(written)
    }

    /// The same beside others who claim so, for what needs no count.
    fn shared_claim_write<T>(&mut self, mut work: impl FnMut(&mut AnyConnection) -> StoreResult<T>) -> StoreResult<T> {
        let written = look_again(|| self.repeat(&mut |conn| backend::shared_claim_transaction(conn, &mut work)))?;
        self.has_written = true;
        Ok(written)
    }

    /// From now on everything is done to few rows of large tables, again and again: by a worker.
    ///
    /// # Errors
    /// The database could not be asked.
    pub fn prefer_lookups(&mut self) -> StoreResult<()> {
        self.local_settings.prefers_lookups = true;
        self.set_lookups()
    }

    /// From now on nothing is repeated once `is_hurried` says so: somebody wants this process to end.
    pub fn give_up_when(&mut self, is_hurried: impl Fn() -> bool + Send + 'static) {
        self.is_hurried = Some(Box::new(is_hurried));
    }

    /// Whether what is done from now on is repeated on a full disk as it is for a server that is away. A command that can be
    /// given again has its answer at once; the end of a run comes but once.
    pub fn wait_for_room(&mut self, waits: bool) {
        self.waits_for_room = waits;
    }

    /// From now on nothing is printed where a locked store is waited for.
    pub fn wait_silently(&mut self) {
        self.waits_silently = true;
    }

    fn repeat<T>(&mut self, work: &mut dyn FnMut(&mut AnyConnection) -> StoreResult<T>) -> StoreResult<T> {
        let started = Instant::now();
        let (mut repeats, mut reconnections, mut few) = (0, 0, 0);
        let (mut unreachable, mut notice) = (None, LockNotice::default());
        loop {
            // Before each claim and each end, and before a poll that finds nothing to claim.
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
                // Where the disk is full that is why no connection could be made either.
                let unreachable = unreachable.filter(|_| repeat != Repeat::WhenRoom);
                return Err(unreachable.unwrap_or_else(|| self.explain(error, repeat)));
            }
            if let Some(path) = self.url.path().filter(|_| repeat == Repeat::Yes && !self.waits_silently) {
                notice.after(started.elapsed(), &path);
            }
            std::thread::sleep(pause(repeats));
            repeats += 1;
            few += u32::from(repeat == Repeat::FewTimes);
            // Without room a rollback may have failed too, and its connection is of no use any more.
            if matches!(repeat, Repeat::AfterReconnect | Repeat::AfterFailover | Repeat::WhenRoom) {
                // A connection that cannot be made is met like a statement that failed: by the next repeat. Every host is
                // tried each time: another one may have become the primary.
                unreachable = self.reconnect().err();
                reconnections += u32::from(unreachable.is_none() && repeat != Repeat::WhenRoom);
            }
        }
    }

    /// A command that is over soon asks each of its questions once: to prepare them first would double its round trips.
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

    /// What is known of a pooler between this connection and the server.
    #[must_use]
    pub fn pooler(&self) -> Pooler {
        self.url.pooler().pooler()
    }

    /// The error for a person, once repeating has not helped.
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

/// Grows from about 5 ms to half a second, and differs between processes that wait for each other.
fn pause(repeats: u32) -> Duration {
    let ceiling_millis = 5_u64 << repeats.min(7);
    Duration::from_millis(ceiling_millis / 2 + u64::from(spread()) % ceiling_millis)
}
