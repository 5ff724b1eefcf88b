//! What a signal to stop means for the run in progress: the first lets it go on for a while, the second ends it.

use std::cell::Cell;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use super::{EngineError, EngineResult};
use crate::os::clock::Moment;
use crate::os::stop_signals::{Alarm, StopSignals};

/// Between TERM and KILL for somebody who said "stop" twice.
const SECOND_GRACE: Duration = Duration::from_secs(2);

/// What the handler in progress deserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// It may go on, or was asked to end already.
    None,
    /// No more time to end by itself.
    Kill,
}

/// A runner that may be told to stop.
pub struct Stopping<'a> {
    signals: &'a StopSignals,
    wait: Duration,
    /// When the first signal was noticed, and the second.
    noticed: Cell<Option<Moment>>,
    hurried: Cell<Option<Moment>>,
    alarm: Alarm,
}

impl<'a> Stopping<'a> {
    /// `wait` is how long a run may go on after the first signal.
    pub(super) fn new(signals: &'a StopSignals, wait: Duration) -> EngineResult<Self> {
        let alarm = Alarm::new().map_err(|source| EngineError::Os { what: "no descriptor for the end", source })?;
        Ok(Self { signals, wait, noticed: Cell::new(None), hurried: Cell::new(None), alarm })
    }

    /// Readable when the handler must be asked to end.
    pub(super) fn alarm(&self) -> BorrowedFd<'_> {
        self.alarm.as_fd()
    }

    /// For another thread, which cannot ask the handler to end: whether the process must end now.
    pub(super) fn must_stop(&self) -> impl Fn() -> bool + Send + use<> {
        let count = self.signals.counter().ok();
        let (wait, noticed) = (self.wait, Cell::new(None));
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

    /// Looks whether signals have come; to be called every half second. `first` hears of the first one, unless it ends the
    /// run at once.
    pub(super) fn check(&self, first: &mut dyn FnMut(Duration)) -> Urgency {
        let count = self.signals.count();
        if count == 0 {
            return Urgency::None;
        }
        let until = self.noticed.get().unwrap_or_else(|| {
            let until = Moment::after(self.wait);
            self.noticed.set(Some(until));
            if count == 1 && !self.wait.is_zero() {
                first(self.wait);
            }
            until
        });
        if count >= 2 || until.has_passed() {
            self.alarm.ring();
        }
        if count >= 2 {
            let kill_at = self.hurried.get().unwrap_or_else(|| Moment::after(SECOND_GRACE));
            self.hurried.set(Some(kill_at));
            if count >= 3 || kill_at.has_passed() {
                return Urgency::Kill;
            }
        }
        Urgency::None
    }
}
