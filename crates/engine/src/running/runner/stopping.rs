//! What a stop signal means for the runs in progress: the first one lets them continue for a while, the second one ends them.
//! An operator's `stop` order counts as the first.

use std::cell::Cell;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::{EngineError, EngineResult};
use crate::running::runner::orders::Orders;
use taskqueue_host::clock::Moment;
use taskqueue_host::net::waker::Waker;
use taskqueue_process::signals::stop_signals::StopSignals;

/// The time from TERM to KILL after a second signal.
const SECOND_GRACE: Duration = Duration::from_secs(2);

/// What to do with the current handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Nothing: it may continue, or was asked to end already.
    None,
    /// Kill it: it had its time to end.
    Kill,
}

/// The stop state of a runner, shared by all its threads.
pub(crate) struct Stopping {
    /// Returns how many signals have come.
    signals: Arc<dyn Fn() -> usize + Send + Sync>,
    orders: Orders,
    /// In milliseconds.
    wait: Arc<AtomicU64>,
    noticed: Mutex<Noticed>,
    alarm: Waker,
    has_rung: AtomicBool,
}

/// The deadlines for handlers.
#[derive(Clone, Copy, Default)]
struct Noticed {
    /// Set when the first signal was noticed.
    until: Option<Moment>,
    /// Set when the second signal was noticed.
    kill_at: Option<Moment>,
    /// Whether the first signal was announced.
    is_announced: bool,
}

impl Stopping {
    /// Creates it; `wait` is how long a run may continue after the first signal.
    pub(crate) fn new(signals: &StopSignals, orders: Orders, wait: Duration) -> EngineResult<Self> {
        let no_descriptor = |source| EngineError::Os { what: "cannot open a descriptor to stop runs", source };
        let alarm = Waker::new().map_err(no_descriptor)?;
        let signals = Arc::new(signals.counter().map_err(no_descriptor)?);
        let (noticed, has_rung) = (Mutex::default(), AtomicBool::new(false));
        let stopping = Self { signals, orders, wait: Arc::default(), noticed, alarm, has_rung };
        stopping.allow(wait);
        Ok(stopping)
    }

    /// Changes how long a run may continue after the first signal.
    pub(crate) fn allow(&self, wait: Duration) {
        self.wait.store(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns true if this runner should claim nothing more: it was asked to stop or drain, or has ended a run because of
    /// that.
    pub(crate) fn is_leaving(&self) -> bool {
        self.has_signal() || self.orders.is_leaving() || self.has_rung.load(Ordering::Relaxed)
    }

    /// Returns true once a signal or an operator asked this runner to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.has_signal() || self.orders.is_stopping()
    }

    fn has_signal(&self) -> bool {
        (self.signals)() > 0
    }

    /// Returns true if the wait after the first signal has passed.
    pub(crate) fn has_run_out(&self) -> bool {
        self.has_rung.load(Ordering::Relaxed)
    }

    /// Returns a descriptor that is readable when the handler must be asked to end.
    pub(crate) fn alarm(&self) -> BorrowedFd<'_> {
        self.alarm.as_fd()
    }

    /// Returns a check whether the process must end now, for another thread, which cannot ask the handler to end.
    pub(crate) fn must_stop(&self) -> impl Fn() -> bool + Send + use<> {
        let (signals, orders) = (Arc::clone(&self.signals), self.orders.clone());
        let (wait, noticed) = (Arc::clone(&self.wait), Cell::new(None));
        move || {
            let count = signals() + usize::from(orders.is_stopping());
            if count == 0 {
                noticed.set(None);
                return false;
            }
            let until = noticed.get().unwrap_or_else(|| Moment::after(allowed(&wait)));
            noticed.set(Some(until));
            count >= 2 || until.has_passed()
        }
    }

    /// Checks for signals; a thread that watches a handler must call it every half second. `first` is called at the first
    /// signal with the time that the runs may continue; zero means that they are asked to end at once. If it returns false,
    /// nothing was announced, and the next call tries again.
    pub(crate) fn check(&self, first: &mut dyn FnMut(Duration) -> bool) -> Urgency {
        let count = (self.signals)() + usize::from(self.orders.is_stopping());
        let mut noticed = self.noticed.lock().unwrap_or_else(PoisonError::into_inner);
        if count == 0 {
            // An order can be withdrawn, unlike a signal.
            (noticed.until, noticed.is_announced) = (None, false);
            return Urgency::None;
        }
        let wait = allowed(&self.wait);
        let until = *noticed.until.get_or_insert_with(|| Moment::after(wait));
        if !noticed.is_announced {
            noticed.is_announced = count > 1 || first(wait);
        }
        if count >= 2 || until.has_passed() {
            self.alarm.wake();
            self.has_rung.store(true, Ordering::Relaxed);
        }
        if count >= 2 {
            let kill_at = *noticed.kill_at.get_or_insert_with(|| Moment::after(SECOND_GRACE));
            if count >= 3 || kill_at.has_passed() {
                return Urgency::Kill;
            }
        }
        Urgency::None
    }
}

fn allowed(wait: &AtomicU64) -> Duration {
    Duration::from_millis(wait.load(Ordering::Relaxed))
}
