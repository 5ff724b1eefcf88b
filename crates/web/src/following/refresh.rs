//! Files that a running server reads again while requests come: at most once a second, and never two requests at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How old what was read may be when a request comes.
const READ_EVERY: Duration = Duration::from_secs(1);

/// When files were read last, and whether they are being read now.
#[derive(Clone)]
pub(crate) struct Refresh(Arc<Mutex<State>>);

struct State {
    read_at: Instant,
    is_reading: bool,
}

impl Refresh {
    /// Of files that have just been read.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(State { read_at: Instant::now(), is_reading: false })))
    }

    /// Calls `read` if it is time, on a thread that may block, and waits for it. While it runs, other requests go on with what was
    /// read before: older content must not replace newer.
    pub(crate) async fn run(&self, read: impl FnOnce() + Send + 'static) {
        let Some(turn) = self.turn() else { return };
        // It ends what it began even if the client of this request has gone by then.
        let _ = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            read();
        })
        .await;
    }

    fn turn(&self) -> Option<Turn> {
        let mut state = self.locked();
        let begins = !state.is_reading && state.read_at.elapsed() >= READ_EVERY;
        state.is_reading |= begins;
        begins.then(|| Turn(self.clone()))
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets others read when dropped, also after a panic.
struct Turn(Refresh);

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.0.locked();
        (state.read_at, state.is_reading) = (Instant::now(), false);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_request_that_ends_during_a_reading_stops_no_later_one() {
        let reads = Arc::new(AtomicUsize::new(0));
        let (release, wait) = mpsc::channel::<()>();
        let refresh = Refresh::new();
        let count = || {
            let reads = Arc::clone(&reads);
            move || {
                reads.fetch_add(1, Ordering::SeqCst);
            }
        };
        let make_old = || {
            let mut state = refresh.locked();
            state.read_at = state.read_at.checked_sub(READ_EVERY).unwrap_or(state.read_at);
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let Ok(runtime) = runtime else { panic!("no runtime") };
        runtime.block_on(async {
            make_old();
            let counted = count();
            let waits = refresh.run(move || {
                let _ = wait.recv();
                counted();
            });
            assert!(tokio::time::timeout(Duration::ZERO, waits).await.is_err(), "the request ends first");
            refresh.run(count()).await;
            assert_eq!(reads.load(Ordering::SeqCst), 0, "another request does not read meanwhile");
            drop(release);
            let ended = async {
                while refresh.locked().is_reading {
                    tokio::task::yield_now().await;
                }
            };
            assert!(tokio::time::timeout(Duration::from_secs(60), ended).await.is_ok(), "the reading ends");
            make_old();
            refresh.run(count()).await;
            assert_eq!(reads.load(Ordering::SeqCst), 2);
        });
    }
}
