//! Whether a run is to end, for a handler in Rust and for the threads that it has started.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Says when its handler is to end: the run is cancelled, its timeout or its time to stop has passed, or its lease is over. Clones
/// say the same.
#[derive(Clone, Debug, Default)]
pub struct CancelToken {
    shared: Arc<(Mutex<bool>, Condvar)>,
}

impl CancelToken {
    /// Whether the handler is to end: it should clean up and return. A success that it returns then stays one.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the handler is to end, for at most so long, and says whether it is.
    #[must_use]
    pub fn wait(&self, limit: Duration) -> bool {
        let (cancelled, changed) = &*self.shared;
        let until = Instant::now().checked_add(limit);
        let mut is_cancelled = cancelled.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = until.map_or(limit, |until| until.saturating_duration_since(Instant::now()));
            if *is_cancelled || left.is_zero() {
                return *is_cancelled;
            }
            is_cancelled = changed.wait_timeout(is_cancelled, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// It is to end from now on.
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
