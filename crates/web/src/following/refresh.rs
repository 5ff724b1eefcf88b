//! Files that a running server reads again while requests come: at most once a second, and never two requests at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// How old what was read may be when a request comes.
const READ_EVERY: Duration = Duration::from_secs(1);

/// When files were read last; locked while they are read.
#[derive(Clone)]
pub(crate) struct Refresh(Arc<Mutex<Instant>>);

impl Refresh {
    /// Of files that have just been read.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    /// Calls `read` if it is time, on a thread that may block, and waits for it. While it runs, other requests go on with what was
    /// read before: older content must not replace newer.
    pub(crate) async fn run(&self, read: impl FnOnce() + Send + 'static) {
        let Ok(mut read_at) = Arc::clone(&self.0).try_lock_owned() else { return };
        if read_at.elapsed() < READ_EVERY {
            return;
        }
        // It ends what it began even if the client of this request has gone by then.
        let _ = tokio::task::spawn_blocking(move || {
            *read_at = Instant::now();
            read();
        })
        .await;
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
            let mut read_at = refresh.0.try_lock().expect("no reading in progress");
            *read_at = read_at.checked_sub(READ_EVERY).unwrap_or(*read_at);
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
            let ended = tokio::time::timeout(Duration::from_secs(60), refresh.0.lock()).await;
            assert!(ended.is_ok(), "the reading ends");
            drop(ended);
            make_old();
            refresh.run(count()).await;
            assert_eq!(reads.load(Ordering::SeqCst), 2);
        });
    }
}
