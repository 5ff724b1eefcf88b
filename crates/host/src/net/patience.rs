//! Limits on how long to wait for a database server. If a statement is not answered in time, another thread shuts down the socket
//! of its connection, so that the waiting thread continues with an error.
//!
//! Client libraries wait without a limit. A stopped server, a lock that is never released or a network that drops packets would
//! otherwise keep a process running that was asked to stop. One thread watches all connections of the process.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};

/// Longer than any statement takes on a server that answers: PostgreSQL ends statements after 600 seconds.
const LONGEST_ANSWER: Duration = Duration::from_secs(660);
/// How long a statement may still take once its process has to stop.
pub const LAST_ANSWER: Duration = Duration::from_secs(5);
/// A shorter wait for an answer is not announced.
const SILENCE: Duration = Duration::from_secs(1);
/// The interval between two checks of all connections.
const CHECK_EVERY: Duration = Duration::from_millis(250);

static WATCH: Mutex<ConnectionWatch> = Mutex::new(ConnectionWatch { connections: Vec::new(), has_thread: false });
/// Notifies that there is a connection to watch again.
static CHANGED: Condvar = Condvar::new();

struct ConnectionWatch {
    connections: Vec<Weak<Connection>>,
    has_thread: bool,
}

/// How long to wait for the answers to one user of a database. All clones share one limit.
#[derive(Clone)]
pub struct Patience {
    shared: Arc<SharedPatience>,
}

struct SharedPatience {
    /// The limit, in milliseconds.
    limit: AtomicU64,
    end: Mutex<End>,
    has_cut: AtomicBool,
    notice: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

#[derive(Default)]
struct End {
    is_over: Option<Box<dyn Fn() -> bool + Send>>,
    since: Option<Instant>,
}

impl Default for Patience {
    fn default() -> Self {
        Self::of(LONGEST_ANSWER)
    }
}

impl Patience {
    /// Returns a limit for the duration of every statement.
    #[must_use]
    pub fn of(limit: Duration) -> Self {
        let shared = SharedPatience {
            limit: AtomicU64::new(0),
            end: Mutex::default(),
            has_cut: AtomicBool::new(false),
            notice: Mutex::default(),
        };
        let patience = Self { shared: Arc::new(shared) };
        patience.set_limit(limit);
        patience
    }

    /// Sets the limit of later statements. Returns the previous one.
    pub fn set_limit(&self, limit: Duration) -> Duration {
        let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.shared.limit.swap(millis, Ordering::Relaxed))
    }

    /// Calls `notice` once, when a statement has not been answered for a second. Another thread calls it.
    pub fn announce_by(&self, notice: impl FnOnce() + Send + 'static) {
        *self.notice() = Some(Box::new(notice));
    }

    fn notice(&self) -> MutexGuard<'_, Option<Box<dyn FnOnce() + Send>>> {
        self.shared.notice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Limits statements to [`LAST_ANSWER`] once `is_over` returns true. Replaces an earlier condition.
    pub fn end_when(&self, is_over: impl Fn() -> bool + Send + 'static) {
        *self.end() = End { is_over: Some(Box::new(is_over)), since: None };
    }

    /// Returns true if the process has to stop, so that long waits are not worthwhile.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over_since().is_some()
    }

    /// Returns true if a connection was shut down because a statement was not answered in time.
    #[must_use]
    pub fn has_cut(&self) -> bool {
        self.shared.has_cut.load(Ordering::Relaxed)
    }

    fn over_since(&self) -> Option<Instant> {
        let mut end = self.end();
        let is_over = end.is_over.as_ref().is_some_and(|is_over| is_over());
        // A request to stop can be withdrawn.
        end.since = is_over.then(|| end.since.unwrap_or_else(Instant::now));
        end.since
    }

    fn end(&self) -> MutexGuard<'_, End> {
        self.shared.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a statement that began at this moment has taken too long.
    fn is_over_for(&self, began: Instant) -> bool {
        let limit = Duration::from_millis(self.shared.limit.load(Ordering::Relaxed));
        let last_began = self.over_since().map(|since| since.max(began));
        began.elapsed() >= limit || last_began.is_some_and(|last_began| last_began.elapsed() >= LAST_ANSWER)
    }
}

/// Two addresses of the same database are equal regardless of these limits.
impl PartialEq for Patience {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Patience {}

impl fmt::Debug for Patience {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Patience").field("limit", &self.shared.limit).finish_non_exhaustive()
    }
}

/// A connection to a server, watched while this value exists.
#[derive(Debug)]
pub struct WatchedConnection {
    connection: Arc<Connection>,
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    patience: Patience,
    /// When its current statement began, in milliseconds since [`start`]; 0 for none.
    began: AtomicU64,
}

impl WatchedConnection {
    /// Watches the connection with this socket. If the thread cannot be started, the connection is not watched.
    #[must_use]
    pub fn new(socket: OwnedFd, patience: Patience) -> Self {
        let connection = Arc::new(Connection { socket, patience, began: AtomicU64::new(0) });
        let mut watch = lock();
        watch.connections.push(Arc::downgrade(&connection));
        if !watch.has_thread {
            watch.has_thread = thread::Builder::new().name("answers".to_owned()).spawn(check_all).is_ok();
        }
        CHANGED.notify_one();
        Self { connection }
    }

    /// Records the start of a statement.
    pub fn begin(&self) {
        let millis = u64::try_from(start().elapsed().as_millis()).unwrap_or(u64::MAX);
        self.connection.began.store(millis.max(1), Ordering::Release);
    }

    /// Records that the statement was answered.
    pub fn end(&self) {
        self.connection.began.store(0, Ordering::Release);
    }
}

impl Connection {
    fn check(&self) {
        let millis = self.began.load(Ordering::Acquire);
        let Some(began) = start().checked_add(Duration::from_millis(millis)).filter(|_| millis > 0) else { return };
        if began.elapsed() >= SILENCE
            && let Some(notice) = self.patience.notice().take()
        {
            notice();
        }
        if self.patience.is_over_for(began) && self.began.load(Ordering::Acquire) == millis {
            self.patience.shared.has_cut.store(true, Ordering::Relaxed);
            // If the connection has already ended, its thread gets that error anyway.
            let _ = shutdown(&self.socket, Shutdown::Both);
        }
    }
}

/// Returns the moment from which statement starts are counted.
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

fn lock() -> MutexGuard<'static, ConnectionWatch> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the watching thread, which sleeps while there is nothing to watch.
fn check_all() {
    let mut watch = lock();
    loop {
        watch.connections.retain(|connection| connection.strong_count() > 0);
        if watch.connections.is_empty() {
            watch = CHANGED.wait(watch).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let connections = watch.connections.clone();
        drop(watch);
        connections.iter().filter_map(Weak::upgrade).for_each(|connection| connection.check());
        thread::sleep(CHECK_EVERY);
        watch = lock();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::testing::eventually;

    fn watched(patience: &Patience) -> (WatchedConnection, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        (WatchedConnection::new(ours.into(), patience.clone()), theirs)
    }

    fn is_open(mut stream: &UnixStream) -> bool {
        stream.read(&mut [0]).is_err()
    }

    #[test]
    fn a_statement_without_an_answer_ends_with_its_connection() {
        let patience = Patience::of(Duration::from_millis(1));
        let ((busy, busy_peer), (_idle, idle_peer)) = (watched(&patience), watched(&patience));
        let (answered, answered_peer) = watched(&Patience::default());
        answered.begin();
        answered.end();
        busy.begin();
        eventually(|| !is_open(&busy_peer));
        assert!(is_open(&idle_peer) && is_open(&answered_peer) && patience.has_cut());
    }

    #[test]
    fn a_process_that_has_to_end_waits_for_no_answer_any_more() {
        let patience = Patience::default();
        let ends = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&ends);
        patience.end_when(move || asked.load(Ordering::Relaxed));
        let (connection, peer) = watched(&patience);
        connection.begin();
        assert!(!patience.is_over());
        ends.store(true, Ordering::Relaxed);
        assert!(patience.clone().is_over());
        eventually(|| !is_open(&peer));
        ends.store(false, Ordering::Relaxed);
        assert!(!patience.is_over(), "an order to stop can be taken back");
    }

    #[test]
    fn a_long_wait_for_an_answer_is_announced_once() {
        let patience = Patience::default();
        let count = Arc::new(AtomicU64::new(0));
        let announced = Arc::clone(&count);
        patience.announce_by(move || {
            announced.fetch_add(1, Ordering::Relaxed);
        });
        let ((first, _peer), (second, _other)) = (watched(&patience), watched(&patience));
        first.begin();
        second.begin();
        eventually(|| count.load(Ordering::Relaxed) == 1);
        assert!(patience.notice().is_none());
    }

    #[test]
    fn a_longer_limit_can_be_set_for_a_while() {
        let patience = Patience::of(Duration::from_secs(1));
        assert_eq!(patience.set_limit(Duration::MAX), Duration::from_secs(1));
        assert!(!patience.is_over_for(start()));
        assert_eq!(patience.set_limit(Duration::ZERO), Duration::from_millis(u64::MAX));
        assert!(patience.is_over_for(Instant::now()));
    }
}
