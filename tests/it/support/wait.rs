//! Polling with a limit: no test sleeps and hopes.

use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// Polls until `done` says so; fails after 60 seconds with `what` in the message.
pub fn wait_until(what: &str, done: impl FnMut() -> bool) {
    wait_longer(Duration::ZERO, what, done);
}

/// The same for what the program itself may put off for so long.
pub fn wait_longer(pause: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        let waited = started.elapsed();
        assert!(waited < LIMIT + pause, "waited {} seconds in vain: {what}", waited.as_secs());
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
