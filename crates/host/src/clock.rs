//! Local deadlines on CLOCK_BOOTTIME, which goes on counting while the machine sleeps and never jumps.
//!
//! Only for how long something takes on this machine. Whatever is compared between hosts comes from the database's clock
//! instead. Runners store this clock beside the database's, for other processes on the same machine since the same boot.

use std::time::Duration;

use rustix::event::Timespec;
use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

/// A point in the time since this machine booted, suspended time included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// The present moment.
    #[must_use]
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        Self(Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0)))
    }

    /// The moment that lies `wait` after now.
    #[must_use]
    pub fn after(wait: Duration) -> Self {
        Self::now().plus(wait)
    }

    /// This moment moved forward; a sum beyond the range stays at its end, which no machine reaches.
    #[must_use]
    pub fn plus(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }

    /// How long ago this moment was; zero while it lies ahead.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }

    /// How long it is until this moment; zero once it has passed.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.0.saturating_sub(Self::now().0)
    }

    /// Milliseconds from boot to this moment.
    #[must_use]
    pub fn millis(self) -> i64 {
        i64::try_from(self.0.as_millis()).unwrap_or(i64::MAX)
    }

    /// Clock ticks from boot to this moment, as the kernel counts the starts of processes.
    #[must_use]
    pub fn ticks(self) -> u64 {
        const NANOS_PER_SEC: u64 = 1_000_000_000;
        let nanos = u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX);
        nanos / (NANOS_PER_SEC / clock_ticks_per_second().clamp(1, NANOS_PER_SEC))
    }

    /// Whether this moment has been reached.
    #[must_use]
    pub fn has_passed(self) -> bool {
        Self::now() >= self
    }
}

/// A wait in the form poll(2) takes. Never longer than an hour, so that a deadline is seen after a suspend.
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
