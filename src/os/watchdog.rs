//! Ends this very process when it does not report in time: for a handler that runs inside it and cannot be ended
//! otherwise. Whoever finds the process dead takes its run.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

use super::clock::Moment;

/// Between two questions whether the process must end for another reason than its deadline.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Armed while it exists.
#[derive(Debug)]
pub struct Watchdog {
    shared: Arc<Shared>,
    limit: Duration,
}

#[derive(Debug)]
struct Shared {
    /// `None` once it is disarmed.
    deadline: Mutex<Option<Moment>>,
    changed: Condvar,
}

impl Watchdog {
    /// From now on the process has `limit` until the next report, and lives no longer than `must_end` says no. The thread
    /// gets this name, by which others can tell what the process works for.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn start(name: &str, limit: Duration, must_end: impl Fn() -> bool + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared { deadline: Mutex::new(Some(Moment::after(limit))), changed: Condvar::new() });
        let watched = Arc::clone(&shared);
        thread::Builder::new().name(name.to_owned()).spawn(move || watch(&watched, &must_end))?;
        Ok(Self { shared, limit })
    }

    /// A report: the limit is counted from now.
    pub fn restart(&self) {
        self.set(Some(Moment::after(self.limit)));
    }

    fn set(&self, deadline: Option<Moment>) {
        *self.shared.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
        self.shared.changed.notify_one();
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.set(None);
    }
}

fn watch(shared: &Shared, must_end: &dyn Fn() -> bool) {
    let mut deadline = shared.deadline.lock().unwrap_or_else(PoisonError::into_inner);
    while let Some(until) = *deadline {
        if until.has_passed() || must_end() {
            // KILL: TERM may be taken over, and the handler has shown that it does not listen.
            let _ = kill_process(getpid(), Signal::KILL);
        }
        deadline = shared
            .changed
            .wait_timeout(deadline, until.remaining().min(ASK_EVERY))
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
}
