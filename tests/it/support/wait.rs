//! Polling with a limit: no test sleeps for a fixed time.

use std::time::{Duration, Instant};

/// Polls until `done` returns true; fails after 60 seconds with `what` in the message.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(60), "timed out after 60 seconds waiting until: {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
