//! Listeners: events as they come, of everything or of one task or run.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::error::Error;
use super::task_queue::{TaskQueue, open};
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_engine::Context;
use taskqueue_engine::inspect::events::{Event, EventFilter, Follower, POLL_INTERVAL};

/// Which events a [`Listener`] gets.
#[derive(Clone, Debug)]
pub struct EventsOf {
    filter: EventFilter,
}

impl EventsOf {
    /// All events.
    #[must_use]
    pub fn everything() -> Self {
        Self { filter: EventFilter::default() }
    }

    /// Those about this task, of all its attempts.
    #[must_use]
    pub fn task(id: TaskId) -> Self {
        Self { filter: EventFilter { task_id: Some(id), ..EventFilter::default() } }
    }

    /// Those about this attempt.
    #[must_use]
    pub fn run(id: RunId) -> Self {
        Self { filter: EventFilter { run_id: Some(id), ..EventFilter::default() } }
    }

    /// Only those of this kind, and of others that are added: `message`, `retried` (`docs/events.md` lists the kinds).
    #[must_use]
    pub fn kind(mut self, kind: &str) -> Self {
        self.filter.kinds.push(kind.to_owned());
        self
    }
}

/// Gets the events that are committed after it was made, each once. It has a connection of its own.
pub struct Listener {
    ctx: Context,
    follower: Follower,
    found: VecDeque<Event>,
    queue: TaskQueue,
}

impl TaskQueue {
    /// Listens from now on.
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
    /// The database's.
    pub fn listen(&self, events: EventsOf) -> Result<Listener, Error> {
        let mut ctx = open(self.url())?;
        let follower = Follower::from_now(&mut ctx, events.filter)?;
        Ok(Listener { ctx, follower, found: VecDeque::new(), queue: self.clone() })
    }
}

impl Listener {
    /// Returns the next event, and waits for it at most so long. `None` after that, or when a
    /// [`StopHandle`](crate::StopHandle) of the queue came first. The database is polled four times a second.
    ///
    /// # Errors
    /// The database's; no event is missed then.
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
            if left.is_zero() || self.queue.stop().wait(left.min(POLL_INTERVAL)) {
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
