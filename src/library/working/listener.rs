//! Listeners: new events of everything, of one task or of one run.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::library::error::Error;
use crate::library::task_queue::{TaskQueue, open};
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_engine::Context;
use taskqueue_engine::inspect::events::{Event, EventFilter, Follower, POLL_INTERVAL};

/// Which events a [`Listener`] receives.
#[derive(Clone, Debug)]
pub struct EventsOf {
    filter: EventFilter,
}

impl EventsOf {
    /// Selects all events.
    #[must_use]
    pub fn everything() -> Self {
        Self { filter: EventFilter::default() }
    }

    /// Selects the events of this task, including all its attempts.
    #[must_use]
    pub fn task(id: TaskId) -> Self {
        Self { filter: EventFilter { task_id: Some(id), ..EventFilter::default() } }
    }

    /// Selects the events of this attempt.
    #[must_use]
    pub fn run(id: RunId) -> Self {
        Self { filter: EventFilter { run_id: Some(id), ..EventFilter::default() } }
    }

    /// Limits the events to this kind, such as `message` or `retried` (`docs/events.md` lists the kinds). Further calls add
    /// kinds.
    #[must_use]
    pub fn kind(mut self, kind: &str) -> Self {
        self.filter.kinds.push(kind.to_owned());
        self
    }
}

/// Receives the events that are committed after its creation, each once. It has its own connection.
pub struct Listener {
    ctx: Context,
    follower: Follower,
    found: VecDeque<Event>,
    queue: TaskQueue,
}

impl TaskQueue {
    /// Creates a listener for new events.
    ///
    /// ```
    /// use std::time::Duration;
    /// use taskqueue::{EventsOf, TaskQueue};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let queue = TaskQueue::connect(&directory.path().join("tasks.db").display().to_string())?;
    /// let mut listener = queue.listen(EventsOf::everything().kind("message"))?;
    /// while let Some(event) = listener.next_event(Duration::from_millis(10))? {
    ///     println!("{:?}: {}", event.task_id, event.details);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error of the database.
    pub fn listen(&self, events: EventsOf) -> Result<Listener, Error> {
        let mut ctx = open(&self.shared.url)?;
        let follower = Follower::from_now(&mut ctx, events.filter)?;
        Ok(Listener { ctx, follower, found: VecDeque::new(), queue: self.clone() })
    }
}

impl Listener {
    /// Returns the next event, and waits for it at most `limit`. Returns `None` after that, or when a
    /// [`StopHandle`](crate::StopHandle) of the queue stopped it. It polls the database four times a second.
    ///
    /// # Errors
    /// Returns an error of the database; no event is missed then.
    pub fn next_event(&mut self, limit: Duration) -> Result<Option<Event>, Error> {
        let until = Instant::now().checked_add(limit);
        loop {
            if self.found.is_empty() {
                self.found.extend(self.follower.next(&mut self.ctx)?);
            }
            let left = until.map_or(limit, |until| until.saturating_duration_since(Instant::now()));
            if let Some(event) = self.found.pop_front() {
                return Ok(Some(event));
            }
            if left.is_zero() || self.queue.shared.stop.wait(left.min(POLL_INTERVAL)) {
                return Ok(None);
            }
        }
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("follower", &self.follower).finish_non_exhaustive()
    }
}
