//! How long a runner is believed without a word from it, and when it must stop believing itself.
//!
//! A runner renews its lease; whoever finds it over on the database's clock may take its runs. The runner itself trusts a
//! lease for less long, counted from before it asked, so that its handler is dead when somebody else begins.

use std::time::Duration;

/// The three times, as the settings give them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// A lease that is not renewed is over after this many seconds.
    pub lease_secs: i64,
    /// Seconds between two renewals, give or take a fifth.
    pub renewal_secs: i64,
    /// So many seconds before the end of its lease a runner kills its handler and writes nothing more.
    pub margin_secs: i64,
}

impl LeaseTimes {
    /// Three renewals, each as late as they may be, and the margin must fit into a lease: two lost renewals cost nothing.
    ///
    /// # Errors
    /// Says which lease these renewals would need.
    pub fn check(self) -> Result<(), String> {
        // Three times six fifths, rounded up.
        let needed = (self.renewal_secs * 18 + 4) / 5 + self.margin_secs;
        if needed <= self.lease_secs {
            return Ok(());
        }
        Err(format!(
            "a lease of {} seconds has no room for three renewals every {} seconds, a fifth late, and the margin of {} seconds; \
             that needs {needed}",
            self.lease_secs, self.renewal_secs, self.margin_secs
        ))
    }

    /// How long the runner trusts a lease, from the moment at which it asked for it.
    #[must_use]
    pub fn trusted_for(self) -> Duration {
        seconds(self.lease_secs - self.margin_secs)
    }

    /// The pause before the next renewal. `random` spreads runners that were started by the same minute of cron.
    #[must_use]
    pub fn renewal_pause(self, random: u16) -> Duration {
        let fifth = seconds(self.renewal_secs) / 5;
        seconds(self.renewal_secs) - fifth + (fifth * 2).mul_f64(f64::from(random) / f64::from(u16::MAX))
    }

    /// Whether a lease that is trusted for so much longer is to be renewed now. One that was taken a moment ago, by a quarter of
    /// the time between two renewals, waits for the next: most runs are over by then.
    #[must_use]
    pub fn is_worth_renewal(self, trusted_for: Duration) -> bool {
        trusted_for <= self.trusted_for().saturating_sub(seconds(self.renewal_secs) / 4)
    }
}

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
    fn a_lease_that_was_taken_a_moment_ago_is_not_renewed_yet() {
        assert!(!DEFAULT.is_worth_renewal(Duration::from_secs(75)));
        assert!(!DEFAULT.is_worth_renewal(Duration::from_secs(71)));
        assert!(DEFAULT.is_worth_renewal(Duration::from_secs(70)));
        assert!(DEFAULT.is_worth_renewal(Duration::ZERO));
    }

    #[test]
    fn renewals_are_spread_by_a_fifth() {
        assert_eq!(DEFAULT.renewal_pause(0), Duration::from_secs(16));
        assert_eq!(DEFAULT.renewal_pause(u16::MAX), Duration::from_secs(24));
        assert_eq!(DEFAULT.trusted_for(), Duration::from_secs(75));
    }
}
