//! Local deadlines on CLOCK_BOOTTIME, which continues during suspend and never jumps.
//!
//! Only for durations on this machine. Times that are compared between hosts come from the database's clock. Runners store this
//! clock too, for other processes on the same machine since the same boot.

use std::time::Duration;

use rustix::event::Timespec;
use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

/// A point in the time since boot, suspended time included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// Returns the present moment.
    #[must_use]
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        Self(Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0)))
    }

    /// Returns the moment `wait` after now.
    #[must_use]
    pub fn after(wait: Duration) -> Self {
        Self::now().plus(wait)
    }

    /// Returns the moment `wait` later; saturates at a value that no uptime reaches.
    #[must_use]
    pub fn plus(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }

    /// Returns how long ago this moment was; zero if it is in the future.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }

    /// Returns the time until this moment; zero if it has passed.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.0.saturating_sub(Self::now().0)
    }

    /// Returns the milliseconds from boot to this moment.
    #[must_use]
    pub fn millis(self) -> i64 {
        i64::try_from(self.0.as_millis()).unwrap_or(i64::MAX)
    }

    /// Returns the clock ticks from boot to this moment, the unit of process start times.
    #[must_use]
    pub fn ticks(self) -> u64 {
        const NANOS_PER_SEC: u64 = 1_000_000_000;
        let nanos = u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX);
        nanos / (NANOS_PER_SEC / clock_ticks_per_second().clamp(1, NANOS_PER_SEC))
    }

    /// Returns true if this moment has been reached.
    #[must_use]
    pub fn has_passed(self) -> bool {
        Self::now() >= self
    }
}

/// Converts a wait for poll(2). At most an hour, so that a deadline is noticed after a suspend.
pub fn poll_wait(wait: Duration) -> Timespec {
    let wait = wait.min(Duration::from_secs(3600));
    Timespec { tv_sec: i64::try_from(wait.as_secs()).unwrap_or(3600), tv_nsec: wait.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_forward_and_deadlines_pass() {
        let start = Moment::now();
        let deadline = start.plus(Duration::from_millis(5));
        assert!(Moment::after(Duration::from_secs(60)).remaining() > Duration::from_secs(50));
        while !deadline.has_passed() {
            std::thread::yield_now();
        }
        assert!(start.elapsed() >= Duration::from_millis(5));
        assert_eq!(deadline.remaining(), Duration::ZERO);
    }

    #[test]
    fn a_deadline_too_far_away_does_not_overflow() {
        assert!(!Moment::after(Duration::MAX).has_passed());
        assert_eq!(poll_wait(Duration::MAX).tv_sec, 3600);
    }
}
