//! The pause of a process that waits for a task to finish: until a notification arrives, if the engine sends any, and otherwise
//! until the next poll.

use std::time::Duration;

use taskqueue_host::clock::Moment;
use taskqueue_process::signals::stop_signals::StopSignals;
use taskqueue_store::{ChangeListener, DatabaseUrl};

/// The shortest time between two polls.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
/// The longest time between two polls.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// With notifications, polling only finds changes for which none is sent.
const LONGEST_PAUSE_LISTENING: Duration = Duration::from_secs(1);
/// The shortest time between two polls, however many notifications arrive.
const LEAST_PAUSE_WITH_NEWS: Duration = Duration::from_millis(10);
/// During this time it only polls, because listening may need a connection.
const LISTEN_AFTER: Duration = Duration::from_millis(100);
/// The time between two attempts to listen.
const LISTEN_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Waits for tasks to finish.
pub(crate) struct EndWatch {
    began: Moment,
    /// The listener of an earlier watch.
    left_over: Option<ChangeListener>,
    listener: Option<ChangeListener>,
    /// When to start listening; ignored while it listens.
    listen_at: Moment,
}

impl EndWatch {
    /// Starts a watch, with the listener of an earlier one if there is one.
    pub(crate) fn begin(left_over: Option<ChangeListener>) -> Self {
        let began = Moment::now();
        Self { began, left_over, listener: None, listen_at: began.plus(LISTEN_AFTER) }
    }

    /// Sleeps until the next poll is worthwhile or a signal has come, for at most `limit`.
    pub(crate) fn sleep(&mut self, url: &DatabaseUrl, stop: &StopSignals, limit: Duration) {
        if self.listener.is_none() && self.listen_at.has_passed() {
            self.listener = self.listen(url);
            self.listen_at = Moment::after(LISTEN_AGAIN_AFTER);
            if self.listener.is_some() {
                // Another poll finds what finished before.
                return;
            }
        }
        let longest = if self.listener.is_some() { LONGEST_PAUSE_LISTENING } else { LONGEST_PAUSE };
        // Polls are rarer the longer the wait: completion is detected after at most one eighth more than the wait so far.
        let pause = (self.began.elapsed() / 8).clamp(FIRST_PAUSE, longest).min(limit);
        let Some(listener) = &mut self.listener else {
            stop.wait(pause);
            return;
        };
        let earliest = Moment::after(LEAST_PAUSE_WITH_NEWS.min(pause));
        if !stop.wait_beside(Some(listener.as_fd()), pause) {
            stop.wait(earliest.remaining());
        }
        if listener.has_changed().is_err() {
            self.listener = None;
        }
    }

    fn listen(&mut self, url: &DatabaseUrl) -> Option<ChangeListener> {
        let again = self.left_over.take().and_then(|mut listener| listener.listen_again().ok().map(|()| listener));
        again.or_else(|| ChangeListener::listen_for_ends(url))
    }

    /// Returns the listener for the next watch.
    pub(crate) fn end(self) -> Option<ChangeListener> {
        let rested = self.listener.and_then(|mut listener| listener.rest().ok().map(|()| listener));
        rested.or(self.left_over)
    }
}
