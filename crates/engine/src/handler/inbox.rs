//! Messages to a run, for its handler. The runner adds them, and any thread of the handler takes them.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use taskqueue_domain::run::message::{Message, Messages};

/// The messages sent to a run and not yet taken, oldest first. Clones share them: each message is taken once.
///
/// It holds at most the last 1000. All of them remain events of the task (`taskqueue events`).
#[derive(Clone, Default)]
pub struct Inbox {
    shared: Arc<SharedInbox>,
}

#[derive(Default)]
struct SharedInbox {
    state: Mutex<InboxState>,
    changed: Condvar,
}

#[derive(Default)]
struct InboxState {
    messages: Messages,
    is_closed: bool,
    notify: Option<Box<dyn Fn() + Send>>,
}

impl Inbox {
    /// Returns an inbox that receives no messages.
    pub(crate) fn closed() -> Self {
        let inbox = Self::default();
        inbox.close();
        inbox
    }

    /// Takes the oldest message; `None` if there is none.
    #[must_use]
    pub fn take(&self) -> Option<Message> {
        self.lock().messages.kept.pop_front()
    }

    /// Takes the oldest message, and waits at most `limit` for one. Returns `None` after that. It also returns `None` as soon
    /// as the run is asked to end or has ended ([`ActiveRun::stop_reason`](super::ActiveRun::stop_reason)), because no more
    /// messages arrive then.
    #[must_use]
    pub fn wait(&self, limit: Duration) -> Option<Message> {
        let must_wait = |state: &mut InboxState| state.messages.kept.is_empty() && !state.is_closed;
        let waited = self.shared.changed.wait_timeout_while(self.lock(), limit, must_wait);
        waited.unwrap_or_else(PoisonError::into_inner).0.messages.kept.pop_front()
    }

    /// Returns how many messages were dropped because more than 1000 waited.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.lock().messages.dropped
    }

    /// Adds a message.
    pub(crate) fn put(&self, message: Message) {
        self.change(|state| state.messages.push(message));
    }

    /// Closes the inbox: no more messages arrive.
    pub(crate) fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    /// Calls `notify` after each change, in the thread that made it.
    pub(crate) fn notify_by(&self, notify: impl Fn() + Send + 'static) {
        self.lock().notify = Some(Box::new(notify));
    }

    fn change(&self, change: impl FnOnce(&mut InboxState)) {
        let mut state = self.lock();
        change(&mut state);
        if let Some(notify) = &state.notify {
            notify();
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, InboxState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("messages", &self.lock().messages).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn message(name: &str) -> Message {
        Message { name: name.to_owned(), data: "null".to_owned() }
    }

    #[test]
    fn messages_are_taken_in_their_order_by_whichever_clone() {
        let inbox = Inbox::default();
        let other = inbox.clone();
        let waiting = std::thread::spawn(move || other.wait(Duration::from_secs(60)));
        inbox.put(message("one"));
        assert_eq!(waiting.join().unwrap(), Some(message("one")));
        inbox.put(message("two"));
        inbox.put(message("three"));
        assert_eq!((inbox.wait(Duration::ZERO), inbox.take()), (Some(message("two")), Some(message("three"))));
        assert_eq!((inbox.take(), inbox.wait(Duration::from_millis(1))), (None, None));
    }

    #[test]
    fn a_wait_ends_when_no_more_messages_can_come() {
        let inbox = Inbox::default();
        let other = inbox.clone();
        let waiting = std::thread::spawn(move || other.wait(Duration::from_secs(600)));
        inbox.close();
        assert_eq!(waiting.join().unwrap(), None);
        inbox.put(message("last"));
        assert_eq!(inbox.wait(Duration::from_secs(600)), Some(message("last")));
        assert_eq!(Inbox::closed().wait(Duration::from_secs(600)), None);
    }

    #[test]
    fn an_inbox_that_nobody_empties_keeps_the_last_thousand() {
        let inbox = Inbox::default();
        (0..1_005).for_each(|number| inbox.put(message(&number.to_string())));
        assert_eq!((inbox.dropped(), inbox.take()), (5, Some(message("5"))));
    }
}
