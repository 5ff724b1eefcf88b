//! Waits for a connection while a server temporarily refuses it: it has no free one, or it is restarting.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{ConnectFailure, StoreError, StoreResult};
use taskqueue_host::random::spread;

/// A shorter wait is not reported.
const SILENT: Duration = Duration::from_secs(1);

const SHORTEST_AT_THE_END: Duration = Duration::from_millis(20);

/// How long a refused connection is retried, and what happens meanwhile.
#[derive(Clone)]
pub struct ConnectWait {
    limit: Option<Duration>,
    announce: Arc<dyn Fn(&str) + Send + Sync>,
    is_stopped: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl ConnectWait {
    /// Returns a single attempt without retries.
    #[must_use]
    pub fn none() -> Self {
        Self::up_to(Duration::ZERO)
    }

    /// Retries for at most `limit`.
    #[must_use]
    pub fn up_to(limit: Duration) -> Self {
        Self { limit: Some(limit), announce: Arc::new(|_| {}), is_stopped: Arc::new(|| false) }
    }

    /// Retries until a connection is made.
    #[must_use]
    pub fn forever() -> Self {
        Self { limit: None, ..Self::none() }
    }

    /// Calls `announce` once, after a second, with the reason for the wait.
    #[must_use]
    pub fn announced_by(self, announce: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { announce: Arc::new(announce), ..self }
    }

    /// Stops retrying once `is_stopped` returns true.
    #[must_use]
    pub fn stopped_by(self, is_stopped: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { is_stopped: Arc::new(is_stopped), ..self }
    }

    /// Calls `connect` until it succeeds, fails for a permanent reason, or the time is up. A failed attempt has sent no
    /// statement, so nothing is done twice.
    ///
    /// # Errors
    /// The last error of `connect`.
    pub(crate) fn retry<T>(&self, mut connect: impl FnMut() -> StoreResult<T>) -> StoreResult<T> {
        let began = Instant::now();
        let (mut repeats, mut is_announced) = (0, false);
        loop {
            let error = match connect() {
                Err(error) if may_pass(&error) => error,
                other => return other,
            };
            let elapsed = began.elapsed();
            let left = self.limit.map_or(Duration::MAX, |limit| limit.saturating_sub(elapsed));
            if left.is_zero() || (self.is_stopped)() {
                return Err(error);
            }
            let pause = next_pause(repeats, left);
            repeats += 1;
            if is_announced || elapsed + pause < SILENT {
                std::thread::sleep(pause);
            } else {
                let silent = SILENT.saturating_sub(elapsed);
                std::thread::sleep(silent);
                is_announced = true;
                (self.announce)(&format!("{error}; {}", self.words()));
                std::thread::sleep(pause.saturating_sub(silent));
            }
        }
    }

    fn words(&self) -> String {
        match self.limit {
            Some(limit) => format!("retrying for up to {} seconds", limit.as_secs()),
            None => "retrying until it can be reached".to_owned(),
        }
    }
}

/// Returns the next pause. It is shorter near the limit: a client with long pauses rarely gets a free connection before others.
fn next_pause(repeats: u32, left: Duration) -> Duration {
    pause(repeats).min((left / 16).max(SHORTEST_AT_THE_END)).min(left)
}

/// Returns true if the server may accept a connection soon.
const fn may_pass(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Unreachable {
            failure: ConnectFailure::TooMany | ConnectFailure::NotReady | ConnectFailure::Refused,
            ..
        }
    )
}

/// Returns a random pause, so that waiting processes do not retry together. It grows from about 5 ms to half a second.
pub(crate) fn pause(repeats: u32) -> Duration {
    let ceiling_millis = 5_u64 << repeats.min(7);
    Duration::from_millis(ceiling_millis / 2 + u64::from(spread()) % ceiling_millis)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn refused(failure: ConnectFailure) -> StoreError {
        StoreError::Unreachable { url: "u".to_owned(), message: "m".to_owned(), failure }
    }

    #[test]
    fn a_connection_is_retried_only_where_the_reason_may_pass() {
        for (failure, expected) in [
            (ConnectFailure::TooMany, 4),
            (ConnectFailure::NotReady, 4),
            (ConnectFailure::Refused, 4),
            (ConnectFailure::Other, 1),
        ] {
            let attempts = Cell::new(0);
            let connected = ConnectWait::forever().retry(|| {
                attempts.set(attempts.get() + 1);
                if attempts.get() < 4 { Err(refused(failure)) } else { Ok(()) }
            });
            assert_eq!((attempts.get(), connected.is_ok()), (expected, expected == 4), "{failure:?}");
        }
    }

    #[test]
    fn the_nearer_the_end_of_a_wait_the_more_often_it_asks() {
        for (left_millis, longest_millis) in [(60_000, 960), (8_000, 500), (2_000, 125), (200, 20), (3, 3)] {
            let pause = next_pause(9, Duration::from_millis(left_millis));
            assert!(pause <= Duration::from_millis(longest_millis), "{left_millis}: {pause:?}");
        }
    }

    #[test]
    fn without_a_wait_and_after_a_stop_there_is_no_other_attempt() {
        for wait in [ConnectWait::none(), ConnectWait::forever().stopped_by(|| true)] {
            let attempts = Cell::new(0);
            let connected = wait.retry(|| {
                attempts.set(attempts.get() + 1);
                Err::<(), _>(refused(ConnectFailure::TooMany))
            });
            assert!(connected.is_err());
            assert_eq!(attempts.get(), 1);
        }
    }

    #[test]
    fn a_wait_is_announced_once_with_its_reason() {
        let told = Arc::new(AtomicUsize::new(0));
        let tells = Arc::clone(&told);
        let wait = ConnectWait::up_to(Duration::from_secs(3)).announced_by(move |text| {
            assert_eq!(text, "cannot reach the database u: m; retrying for up to 3 seconds");
            tells.fetch_add(1, Ordering::Relaxed);
        });
        assert!(wait.retry(|| Err::<(), _>(refused(ConnectFailure::TooMany))).is_err());
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }
}
