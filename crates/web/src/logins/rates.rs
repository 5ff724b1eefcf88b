//! How many requests each login may send, so that one program cannot delay the others.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use taskqueue_domain::limits::limit::Rate;

/// Counts the requests of each login in the current period.
pub(crate) struct Rates {
    limit: Rate,
    periods: Mutex<HashMap<String, Period>>,
}

struct Period {
    began: Instant,
    requests: i32,
}

impl Rates {
    pub(crate) fn new(limit: Rate) -> Self {
        Self { limit, periods: Mutex::default() }
    }

    /// Counts a request. If the login has sent too many in this period, returns how long the rest of the period is.
    pub(crate) fn count(&self, login: &str, now: Instant) -> Result<(), Duration> {
        let whole = Duration::from_secs(u64::try_from(self.limit.secs).unwrap_or(1));
        let mut periods = self.periods.lock().unwrap_or_else(PoisonError::into_inner);
        let period = periods.entry(login.to_owned()).or_insert(Period { began: now, requests: 0 });
        let age = now.saturating_duration_since(period.began);
        if age >= whole {
            *period = Period { began: now, requests: 0 };
        }
        if period.requests >= self.limit.count {
            return Err(whole.saturating_sub(age));
        }
        period.requests += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_waits_for_its_next_period_and_others_do_not() {
        let rates = Rates::new(Rate { count: 2, secs: 10 });
        let begin = Instant::now();
        let at = |secs| begin + Duration::from_secs(secs);
        assert_eq!([rates.count("ann", at(0)), rates.count("ann", at(1))], [Ok(()), Ok(())]);
        assert_eq!(rates.count("ann", at(4)), Err(Duration::from_secs(6)));
        assert_eq!(rates.count("bob", at(4)), Ok(()));
        assert_eq!(rates.count("ann", at(10)), Ok(()));
    }
}
