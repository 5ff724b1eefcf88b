//! What happens to a Rust handler that does not end when it must: a thread cannot be ended from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long a Rust handler may continue after it was asked to end.
const DEFAULT_GRACE: Duration = Duration::from_secs(10);

/// What a runner does with a Rust handler that has not ended within its grace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OverrunAction {
    /// Record the end of the run and continue without the handler's thread. What that thread reports or returns later changes
    /// nothing in the store. Another attempt of the task may run beside it.
    #[default]
    LeaveBehind,
    /// Kill the whole process (`SIGKILL`), so that two attempts of a task never run at once. The end of the run is written to
    /// the spool, for the next process on this host to record. The other runs of the process are lost with it.
    Abort,
}

/// The policy for Rust handlers that do not end in time, and the threads that were left behind.
#[derive(Debug)]
pub struct Overrun {
    /// What to do when the grace has passed.
    pub action: OverrunAction,
    /// How long a handler may continue after it was asked to end.
    pub grace: Duration,
    /// How many threads may be left behind before nothing more is claimed; `None`: as many as there are slots.
    pub most: Option<usize>,
    pub(crate) left_behind: Arc<LeftBehind>,
}

impl Default for Overrun {
    fn default() -> Self {
        Self { action: OverrunAction::default(), grace: DEFAULT_GRACE, most: None, left_behind: Arc::default() }
    }
}

impl Overrun {
    /// Returns how many threads a runner with this many slots may leave behind before it claims nothing more.
    pub(crate) fn most(&self, slots: usize) -> usize {
        self.most.unwrap_or(slots).max(1)
    }

    /// Returns true if a runner with this many slots may leave no further thread behind.
    pub(crate) fn is_full(&self, slots: usize) -> bool {
        self.left_behind.count() >= self.most(slots)
    }
}

/// Counts the threads that were left behind and have not ended.
#[derive(Debug, Default)]
pub(crate) struct LeftBehind(AtomicUsize);

impl LeftBehind {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn remove(&self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_threads_left_behind_is_the_number_of_slots() {
        let overrun = Overrun::default();
        overrun.left_behind.add();
        assert!(overrun.is_full(1) && !overrun.is_full(2));
        overrun.left_behind.remove();
        assert!(!overrun.is_full(1));
        assert_eq!((Overrun { most: Some(0), ..overrun }.most(4), Overrun::default().most(4)), (1, 4));
    }
}
