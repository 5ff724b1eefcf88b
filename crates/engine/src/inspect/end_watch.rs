//! The sleep of somebody who waits for the end of a task: until an end is heard of, where the engine can tell, and otherwise until
//! it is time to ask again.

use std::time::Duration;

use taskqueue_host::clock::Moment;
use taskqueue_process::signals::stop_signals::StopSignals;
use taskqueue_store::{ChangeListener, DatabaseUrl};

/// The shortest time between two questions that nobody has told to ask.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
/// The longest.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Where it is heard of, a question is for what nobody tells of.
const LONGEST_PAUSE_LISTENING: Duration = Duration::from_secs(1);
/// The shortest time between two questions, however many ends are told of.
const LEAST_PAUSE_WITH_NEWS: Duration = Duration::from_millis(10);
/// What ends before is found by asking: to listen may need a connection.
const LISTEN_AFTER: Duration = Duration::from_millis(100);
/// Between two attempts to listen.
const LISTEN_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Watches for the ends of tasks, whichever they are.
pub(crate) struct EndWatch {
    began: Moment,
    /// What an earlier watch has left.
    left_over: Option<ChangeListener>,
    listener: Option<ChangeListener>,
    /// Set while it does not listen.
    listen_at: Moment,
}

impl EndWatch {
    /// Begins with what an earlier one has left, if there was one.
    pub(crate) fn begin(left_over: Option<ChangeListener>) -> Self {
        let began = Moment::now();
        Self { began, left_over, listener: None, listen_at: began.plus(LISTEN_AFTER) }
    }

    /// Sleeps until it is worth asking again, or a signal has come, for at most so long.
    pub(crate) fn sleep(&mut self, url: &DatabaseUrl, stop: &StopSignals, limit: Duration) {
        if self.listener.is_none() && self.listen_at.has_passed() {
            self.listener = self.listen(url);
            self.listen_at = Moment::after(LISTEN_AGAIN_AFTER);
            if self.listener.is_some() {
                // What ended before is found by asking once more.
                return;
            }
        }
        let longest = if self.listener.is_some() { LONGEST_PAUSE_LISTENING } else { LONGEST_PAUSE };
        // What has taken long is not asked for often: an end is heard of late by an eighth of the wait.
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

    /// What the next one may begin with.
    pub(crate) fn end(self) -> Option<ChangeListener> {
        let rested = self.listener.and_then(|mut listener| listener.rest().ok().map(|()| listener));
        rested.or(self.left_over)
    }
}
