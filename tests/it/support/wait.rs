//! Polling with a limit: no test sleeps and hopes.

use std::time::{Duration, Instant};

/// Polls until `done` says so; fails after 60 seconds with `what` in the message.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < Duration::from_secs(60), "waited 60 seconds in vain: {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
