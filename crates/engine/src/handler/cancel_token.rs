//! Cancellation token for a Rust handler and the threads that it started.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Signals that a handler should end: the run was cancelled, its timeout or its time to stop has passed, or its lease has
/// expired. Clones share the signal.
#[derive(Clone, Debug, Default)]
pub struct CancelToken {
    shared: Arc<(Mutex<bool>, Condvar)>,
}

impl CancelToken {
    /// Returns true if the handler should clean up and return. A success that it returns afterwards still counts.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits at most `limit` for the signal. Returns whether it was given.
    #[must_use]
    pub fn wait(&self, limit: Duration) -> bool {
        let (cancelled, changed) = &*self.shared;
        let state = cancelled.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(state, limit, |is_cancelled| !*is_cancelled);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Gives the signal.
    pub(crate) fn cancel(&self) {
        *self.shared.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.1.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_for_a_cancel_is_woken_by_it() {
        let token = CancelToken::default();
        assert!(!token.is_cancelled() && !token.wait(Duration::from_millis(1)));
        let other = token.clone();
        let waiting = std::thread::spawn(move || other.wait(Duration::from_secs(60)));
        token.cancel();
        assert!(waiting.join().unwrap() && token.is_cancelled() && token.wait(Duration::ZERO));
    }
}
