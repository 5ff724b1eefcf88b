//! Lease times: how long others trust a runner that does not renew its lease, and how long the runner trusts it.
//!
//! A runner renews its lease. When the lease has expired by the database's clock, any runner may take its runs. The runner itself
//! trusts the lease for less time, counted from before the request, so that its handler is dead before another one starts.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

/// The longest time between TERM and KILL for a handler whose lease is no longer trusted.
const LONGEST_NOTICE: Duration = Duration::from_secs(2);

/// The three times, as configured in the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// Seconds after which a lease that is not renewed expires.
    pub lease_secs: i64,
    /// Seconds between two renewals, plus or minus a fifth.
    pub renewal_secs: i64,
    /// Seconds before the end of its lease at which a runner kills its handler and stops writing.
    pub margin_secs: i64,
}

impl LeaseTimes {
    /// Checks that three renewals, each as late as allowed, and the margin fit into a lease: two lost renewals do no harm.
    ///
    /// # Errors
    /// They do not fit; the text names the lease that these renewals need.
    pub fn check(self) -> Result<(), String> {
        // Three times six fifths, rounded up.
        let needed = (self.renewal_secs * 18 + 4) / 5 + self.margin_secs;
        if needed <= self.lease_secs {
            return Ok(());
        }
        Err(format!(
            "a lease of {} seconds is too short for three renewals every {} seconds, each a fifth late, and the margin of {} \
             seconds; it needs {needed}",
            self.lease_secs, self.renewal_secs, self.margin_secs
        ))
    }

    /// Returns times with the same lease, and a renewal and a margin that fit into it. The lease must be at least 5 seconds long.
    #[must_use]
    pub fn fitted(self) -> Self {
        let margin_secs = self.margin_secs.min(self.lease_secs / 3).max(1);
        let renewal_secs = self.renewal_secs.min((self.lease_secs - margin_secs) * 5 / 18).max(1);
        Self { renewal_secs, margin_secs, ..self }
    }

    /// Returns how long the runner trusts a lease, counted from the moment it asked for it.
    #[must_use]
    pub fn trusted_for(self) -> Duration {
        seconds(self.lease_secs - self.margin_secs)
    }

    /// Returns the pause before the next renewal. `random` spreads runners that cron started in the same minute.
    #[must_use]
    pub fn renewal_pause(self, random: u16) -> Duration {
        let fifth = seconds(self.renewal_secs) / 5;
        seconds(self.renewal_secs) - fifth + (fifth * 2).mul_f64(f64::from(random) / f64::from(u16::MAX))
    }

    /// Returns true if a lease that is trusted for this much longer should be renewed now. A lease younger than a quarter of the
    /// renewal interval is left for the next renewal: most runs have ended by then.
    #[must_use]
    pub fn is_worth_renewal(self, trusted_for: Duration) -> bool {
        trusted_for <= self.trusted_for().saturating_sub(seconds(self.renewal_secs) / 4)
    }

    /// Returns how long a handler may take to end once the lease is no longer trusted: a small part of the margin.
    #[must_use]
    pub fn notice(self) -> Duration {
        (seconds(self.margin_secs) / 3).min(LONGEST_NOTICE)
    }
}

/// A smaller difference between two clocks is the duration of a statement, or clock drift.
const SMALLEST_STEP: TimeDelta = TimeDelta::seconds(2);

/// One moment on two clocks: the database's, which may be set, and the host's clock since boot, which cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TwoClocks {
    /// By the database's clock.
    pub on: DateTime<Utc>,
    /// Milliseconds since the host booted.
    pub boot_ms: i64,
}

impl TwoClocks {
    /// Returns by how much the database's clock was set between `earlier` and this moment: negative if it was set back, zero if
    /// it was not set. Both moments must belong to the same boot of the same host.
    #[must_use]
    pub fn step_since(self, earlier: Self) -> TimeDelta {
        let step = (self.on - earlier.on) - self.elapsed_since(earlier);
        if step.abs() < SMALLEST_STEP { TimeDelta::zero() } else { step }
    }

    /// Returns the time that passed since `earlier`, even if the database's clock was set.
    #[must_use]
    pub fn elapsed_since(self, earlier: Self) -> TimeDelta {
        TimeDelta::milliseconds(self.boot_ms.saturating_sub(earlier.boot_ms).clamp(-LONGEST_MS, LONGEST_MS))
    }
}

/// A thousand years: more than any uptime, and any instant can be moved by it without overflow.
const LONGEST_MS: i64 = 1_000 * 365 * 86_400 * 1_000;

fn seconds(secs: i64) -> Duration {
    Duration::from_secs(u64::try_from(secs).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: LeaseTimes = LeaseTimes { lease_secs: 90, renewal_secs: 20, margin_secs: 15 };

    #[test]
    fn two_lost_renewals_fit_into_a_lease() {
        assert_eq!(DEFAULT.check(), Ok(()));
        assert_eq!(LeaseTimes { lease_secs: 87, ..DEFAULT }.check(), Ok(()));
        let error = LeaseTimes { lease_secs: 86, ..DEFAULT }.check().unwrap_err();
        assert!(error.contains("needs 87"), "{error}");
    }

    #[test]
    fn times_are_fitted_into_every_lease_and_stay_if_they_fit() {
        assert_eq!(DEFAULT.fitted(), DEFAULT);
        for lease_secs in (5..200).chain([3_600, 86_400]) {
            for (renewal_secs, margin_secs) in [(1, 1), (20, 15), (3_600, 3_600), (1, 3_600), (3_600, 1)] {
                let fitted = LeaseTimes { lease_secs, renewal_secs, margin_secs }.fitted();
                assert_eq!((fitted.check(), fitted.lease_secs), (Ok(()), lease_secs), "{fitted:?}");
                assert!(fitted.renewal_secs >= 1 && fitted.margin_secs >= 1, "{fitted:?}");
            }
        }
    }

    #[test]
    fn a_lease_that_was_taken_a_moment_ago_is_not_renewed_yet() {
        assert!(!DEFAULT.is_worth_renewal(Duration::from_secs(75)));
        assert!(!DEFAULT.is_worth_renewal(Duration::from_secs(71)));
        assert!(DEFAULT.is_worth_renewal(Duration::from_secs(70)));
        assert!(DEFAULT.is_worth_renewal(Duration::ZERO));
    }

    #[test]
    fn a_clock_that_is_set_is_told_from_time_that_passes() {
        let at = |secs: i64, boot_ms: i64| TwoClocks { on: DateTime::UNIX_EPOCH + TimeDelta::seconds(secs), boot_ms };
        let before = at(1_000, 50_000);
        assert_eq!(at(1_090, 140_000).step_since(before), TimeDelta::zero());
        assert_eq!(at(1_091, 140_000).step_since(before), TimeDelta::zero());
        assert_eq!(at(173_890, 140_000).step_since(before), TimeDelta::days(2));
        assert_eq!(at(-171_710, 140_000).step_since(before), TimeDelta::days(-2));
        assert_eq!(at(173_890, 140_000).elapsed_since(before), TimeDelta::seconds(90));
        // A number that no runner writes.
        assert_eq!(at(0, i64::MIN).elapsed_since(before), TimeDelta::milliseconds(-LONGEST_MS));
    }

    #[test]
    fn renewals_are_spread_by_a_fifth() {
        assert_eq!(DEFAULT.renewal_pause(0), Duration::from_secs(16));
        assert_eq!(DEFAULT.renewal_pause(u16::MAX), Duration::from_secs(24));
        assert_eq!(DEFAULT.trusted_for(), Duration::from_secs(75));
    }
}
