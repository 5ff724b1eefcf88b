//! Figures that take longer to read: they are read again only after a while, for all pages at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};

use crate::following::live::Live;
use crate::querying::database::{Database, SERVER};
use crate::querying::hidden::Answered;
use taskqueue_engine::{Context, EngineResult};

/// How long the database may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How long a page waits for newer figures.
const PAGE_LIMIT: Duration = Duration::from_millis(100);
/// How long a page waits if there are none, or only such as are old.
const FIRST_LIMIT: Duration = Duration::from_secs(1);
const OLD: Duration = Duration::from_secs(60);
/// Reading takes at most this part of the time, unless it takes very long.
const PART: u32 = 20;
/// The longest pause between two readings.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Figures, and how they are read.
pub(crate) struct Cached<T> {
    database: Database,
    every: Duration,
    read: fn(&mut Context) -> EngineResult<T>,
    last: watch::Sender<Last<T>>,
    wanted: Notify,
}

/// The figures that were read last, and until when they are not read again.
struct Last<T> {
    figures: Option<Arc<T>>,
    fresh_until: Instant,
}

impl<T: Answered + PartialEq + Send + Sync + 'static> Cached<T> {
    pub(crate) fn new(database: Database, every: Duration, read: fn(&mut Context) -> EngineResult<T>) -> Self {
        let (last, _) = watch::channel(Last { figures: None, fresh_until: Instant::now() });
        Self { database, every, read, last, wanted: Notify::new() }
    }

    /// Returns the figures; older ones if the database does not answer at once, and none if it refuses or takes too long.
    pub(crate) async fn get(&self) -> Option<Arc<T>> {
        let is_fresh = |last: &Last<T>| Instant::now() < last.fresh_until;
        let mut last = self.last.subscribe();
        if !is_fresh(&last.borrow()) {
            self.wanted.notify_one();
            let is_usable = |last: &Last<T>| last.figures.is_some() && last.fresh_until.elapsed() < OLD;
            let limit = if is_usable(&last.borrow()) { PAGE_LIMIT } else { FIRST_LIMIT };
            let _ = timeout(limit, last.wait_for(is_fresh)).await;
        }
        last.borrow().figures.clone()
    }

    /// Reads as long as the server runs, whenever a page has asked for the figures, and while one is open. Informs the open pages
    /// when the figures have changed.
    pub(crate) async fn follow(&self, live: &Live) {
        loop {
            if !live.is_watched() {
                self.wanted.notified().await;
            }
            let began = Instant::now();
            let found = timeout(ANSWER_LIMIT, self.database.call(SERVER, self.read)).await;
            // Old figures would not show their age.
            let figures = found.ok().and_then(Result::ok).map(Arc::new);
            let pause = if figures.is_some() { (began.elapsed() * PART).min(LONGEST_PAUSE) } else { Duration::ZERO };
            let fresh_until = Instant::now() + self.every.max(pause);
            let has_changed = figures != self.last.borrow().figures;
            self.last.send_replace(Last { figures, fresh_until });
            if has_changed {
                live.changed();
            }
            sleep_until(fresh_until).await;
        }
    }
}
