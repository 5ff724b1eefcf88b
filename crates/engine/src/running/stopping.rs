//! What a signal to stop means for the runs in progress: the first lets them go on for a while, the second ends them. An
//! operator who stops this runner from afar counts as the first.

use std::cell::Cell;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::claiming::orders::Orders;
use crate::{EngineError, EngineResult};
use taskqueue_host::clock::Moment;
use taskqueue_process::signals::stop_signals::{Alarm, StopSignals};
use taskqueue_store::DatabaseUrl;

/// Between TERM and KILL for somebody who said "stop" twice.
const SECOND_GRACE: Duration = Duration::from_secs(2);

/// What the handler in progress deserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// It may go on, or was asked to end already.
    None,
    /// No more time to end by itself.
    Kill,
}

/// A runner that may be told to stop. All of its threads ask the same one.
pub(crate) struct Stopping {
    /// How many signals have come.
    signals: Arc<dyn Fn() -> usize + Send + Sync>,
    orders: Orders,
    /// In milliseconds.
    wait: Arc<AtomicU64>,
    noticed: Mutex<Noticed>,
    alarm: Alarm,
    has_rung: AtomicBool,
}

/// Until when handlers may go on.
#[derive(Clone, Copy, Default)]
struct Noticed {
    /// Since the first signal was noticed.
    until: Option<Moment>,
    /// Since the second was.
    kill_at: Option<Moment>,
    /// Somebody was told of the first.
    is_announced: bool,
}

impl Stopping {
    /// `wait` is how long a run may go on after the first signal.
    pub(crate) fn new(signals: &StopSignals, orders: Orders, wait: Duration) -> EngineResult<Self> {
        let no_descriptor = |source| EngineError::Os { what: "no descriptor for the end", source };
        let alarm = Alarm::new().map_err(no_descriptor)?;
        let signals = Arc::new(signals.counter().map_err(no_descriptor)?);
        let (noticed, has_rung) = (Mutex::default(), AtomicBool::new(false));
        let stopping = Self { signals, orders, wait: Arc::default(), noticed, alarm, has_rung };
        stopping.allow(wait);
        Ok(stopping)
    }

    /// From now on a run may go on for so long after the first signal.
    pub(crate) fn allow(&self, wait: Duration) {
        self.wait.store(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether this runner is to claim nothing more: it was told to stop or to leave, or has ended a run for it.
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

    /// Whether the time that runs had after the first signal is over.
    pub(crate) fn has_run_out(&self) -> bool {
        self.has_rung.load(Ordering::Relaxed)
    }

    /// Readable when the handler must be asked to end.
    pub(crate) fn alarm(&self) -> BorrowedFd<'_> {
        self.alarm.as_fd()
    }

    /// For another thread, which cannot ask the handler to end: whether the process must end now.
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

    /// Looks whether signals have come; to be called every half second by whoever watches a handler. `first` hears of
    /// the first one, and for how long the runs may go on: no time at all if they are asked to end at once. It returns whether
    /// somebody heard of it: otherwise the next one who calls is told.
    pub(crate) fn check(&self, first: &mut dyn FnMut(Duration) -> bool) -> Urgency {
        let count = (self.signals)() + usize::from(self.orders.is_stopping());
        let mut noticed = self.noticed.lock().unwrap_or_else(PoisonError::into_inner);
        if count == 0 {
            // An order can be taken back, unlike a signal.
            (noticed.until, noticed.is_announced) = (None, false);
            return Urgency::None;
        }
        let wait = allowed(&self.wait);
        let until = *noticed.until.get_or_insert_with(|| Moment::after(wait));
        if !noticed.is_announced {
            noticed.is_announced = count > 1 || first(wait);
        }
        if count >= 2 || until.has_passed() {
            self.alarm.ring();
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

/// Before a runner has orders: whether the process must end now, so many seconds after the first signal or at once after the second.
pub(crate) fn must_end(signals: &StopSignals, wait: Duration) -> impl Fn() -> bool + Send + use<> {
    let (count, noticed) = (signals.counter().ok(), Cell::new(None));
    move || {
        let count = count.as_ref().map_or(0, |count| count());
        if count == 0 {
            return false;
        }
        let until = noticed.get().unwrap_or_else(|| Moment::after(wait));
        noticed.set(Some(until));
        count >= 2 || until.has_passed()
    }
}

/// From now on statements on this database are not waited for any longer than a process may that has got these signals.
pub fn end_statements_on(url: &DatabaseUrl, signals: &StopSignals, wait: Duration) {
    url.patience().end_when(must_end(signals, wait));
}

fn allowed(wait: &AtomicU64) -> Duration {
    Duration::from_millis(wait.load(Ordering::Relaxed))
}
