//! One poller for all streams of events: it reads each event once, and nothing while there are no streams.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, broadcast};

use crate::querying::database::{Database, SERVER};
use crate::querying::hidden::{Answered, nothing_to_hide};
use crate::serving::problem::Problem;
use taskqueue_domain::text::outside_text::to_clean_json;
use taskqueue_engine::inspect::events::{Event, EventFilter, Follower, POLL_INTERVAL, Passed, PassedPage};
use taskqueue_engine::{Context, EngineResult};
use taskqueue_views::json::event_json;

/// How many events are kept for streams that are slow; a slower one reads them from the database.
const KEPT: usize = 4_096;
/// How many streams read from the database at the same time. After a restart of the server all connect again at once: they must
/// neither be refused nor delay other requests.
const TURNS: usize = 2;

/// An event with its JSON.
pub(crate) struct Line {
    pub(crate) event: Event,
    pub(crate) json: String,
}

impl Line {
    pub(crate) fn of(event: Event) -> Self {
        let json = to_clean_json(&event_json(&event)).unwrap_or_default();
        Self { event, json }
    }
}

/// New events, and what the feed had passed before the first of them.
pub(crate) struct Subscription {
    pub(crate) lines: broadcast::Receiver<Arc<Line>>,
    pub(crate) passed: Passed,
}

nothing_to_hide!(Subscription);

/// The poller.
#[derive(Clone)]
pub(crate) struct Feed {
    database: Database,
    lines: broadcast::Sender<Arc<Line>>,
    turns: Arc<Semaphore>,
    /// Held while it reads and sends, so that a subscription begins between two reads. Only threads of the database wait for it.
    follower: Arc<Mutex<Option<Follower>>>,
}

impl Feed {
    pub(crate) fn new(database: Database) -> Self {
        let turns = Arc::new(Semaphore::new(TURNS));
        Self { database, lines: broadcast::channel(KEPT).0, turns, follower: Arc::default() }
    }

    /// Subscribes to all events that are committed from now on.
    pub(crate) async fn subscribe(&self) -> Result<Subscription, Problem> {
        let _turn = self.turns.acquire().await;
        self.call(Self::read).await
    }

    /// Returns a page of the events after this id that the feed had passed.
    pub(crate) async fn page(&self, passed: &Passed, after: i64) -> Result<PassedPage, Problem> {
        let (_turn, passed) = (self.turns.acquire().await, passed.clone());
        self.call(move |_, ctx| passed.page(ctx, after)).await
    }

    async fn call<T: Answered + Send + 'static>(
        &self,
        act: impl FnOnce(&Self, &mut Context) -> EngineResult<T> + Send + 'static,
    ) -> Result<T, Problem> {
        let feed = self.clone();
        self.database.call(SERVER, move |ctx| act(&feed, ctx)).await
    }

    /// Polls as long as the server runs, while there are streams.
    pub(crate) async fn poll(&self) {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            if self.lines.receiver_count() > 0 {
                // After a failure, the next poll reads the same events.
                let _ = self.call(Self::read).await;
            }
        }
    }

    /// Sends the new events to all streams, and returns a subscription to the next ones.
    fn read(&self, ctx: &mut Context) -> EngineResult<Subscription> {
        let mut follower = self.follower.lock().unwrap_or_else(PoisonError::into_inner);
        if self.lines.receiver_count() == 0 {
            *follower = None;
        }
        let follower = match follower.as_mut() {
            Some(follower) => follower,
            None => follower.insert(Follower::from_now(ctx, EventFilter::default())?),
        };
        let mut events = follower.next(ctx)?;
        self.database.hide_in(&mut events);
        for event in events {
            // Fails if there are no streams.
            let _ = self.lines.send(Arc::new(Line::of(event)));
        }
        Ok(Subscription { lines: self.lines.subscribe(), passed: follower.passed() })
    }
}
