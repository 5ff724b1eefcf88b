//! When a task expires: the time from which no attempt of it may start.

use chrono::{DateTime, TimeDelta, TimeZone, Utc};

use super::checks::{in_range, validate_instant};
use crate::time::when::{parse_duration, parse_start};

/// The longest time until a task expires, in seconds: ten years, the longest duration that can be written.
pub const MAX_EXPIRY_SECS: i64 = 10 * 366 * 86_400;

/// When a task expires, as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// This many seconds after the time at which it is to be processed.
    After(i64),
    /// At this time.
    At(DateTime<Utc>),
}

impl Expiry {
    /// Parses a duration, which counts from the time of the task, or a time like that of `--at`.
    ///
    /// # Errors
    /// It is neither, or has a fraction of a second; as a sentence without a full stop.
    pub fn parse<Zone: TimeZone>(text: &str, now: &DateTime<Zone>) -> Result<Self, String> {
        let Ok(duration) = parse_duration(text) else { return parse_start(text, now).map(Self::At) };
        if duration.subsec_nanos() != 0 {
            return Err(format!("\"{text}\" has a fraction of a second; write whole seconds"));
        }
        Ok(Self::After(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)))
    }

    /// Checks that the task can start before it expires, as far as that is known; `scheduled_on` is its time, if it has one.
    ///
    /// # Errors
    /// It cannot, or the time cannot be stored.
    pub(crate) fn check(self, scheduled_on: Option<DateTime<Utc>>) -> Result<(), String> {
        if let Self::After(secs) = self {
            in_range("expires", Some(secs), 1, MAX_EXPIRY_SECS)?;
        }
        let Some(expires) = scheduled_on.map(|on| self.start_before(on)).or(self.instant()) else { return Ok(()) };
        validate_instant(expires)?;
        match scheduled_on.filter(|on| expires <= *on) {
            Some(on) => Err(format!(
                "the task would expire at {}, and may not start before {}",
                expires.to_rfc3339(),
                on.to_rfc3339()
            )),
            None => Ok(()),
        }
    }

    fn instant(self) -> Option<DateTime<Utc>> {
        match self {
            Self::After(_) => None,
            Self::At(instant) => Some(instant),
        }
    }

    /// Returns the time from which no attempt may start, for a task that is to be processed at `scheduled_on`.
    #[must_use]
    pub fn start_before(self, scheduled_on: DateTime<Utc>) -> DateTime<Utc> {
        match self {
            Self::After(secs) => {
                let later = TimeDelta::try_seconds(secs).and_then(|secs| scheduled_on.checked_add_signed(secs));
                later.unwrap_or(DateTime::<Utc>::MAX_UTC)
            }
            Self::At(instant) => instant,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_from_the_time_of_the_task_and_a_time_is_itself() {
        let now = DateTime::parse_from_rfc3339("2026-11-21T12:00:00+02:00").unwrap();
        let expiry = |text: &str| Expiry::parse(text, &now);
        assert_eq!(expiry("2h30m"), Ok(Expiry::After(9_000)));
        assert_eq!(expiry("13:00"), Ok(Expiry::At("2026-11-21T11:00:00Z".parse().unwrap())));
        assert_eq!(expiry("+1h"), Ok(Expiry::At("2026-11-21T11:00:00Z".parse().unwrap())));
        for bad in ["1.5s", "soon", "08:00", "2 daz"] {
            assert!(expiry(bad).is_err(), "{bad}: {:?}", expiry(bad));
        }
    }

    #[test]
    fn a_task_that_can_never_start_is_refused() {
        let on: DateTime<Utc> = "2026-11-21T12:00:00Z".parse().unwrap();
        assert_eq!(Expiry::After(1).check(Some(on)), Ok(()));
        assert_eq!(Expiry::At(on).check(None), Ok(()));
        for (expiry, part) in [
            (Expiry::After(0), "1 to 316224000"),
            (Expiry::After(-1), "1 to 316224000"),
            (Expiry::At(on), "expire at 2026-11-21T12:00:00+00:00"),
            (Expiry::At(DateTime::UNIX_EPOCH), "2000 to 9999"),
            (Expiry::At("2026-12-31T23:59:60Z".parse().unwrap()), "2026-12-31T23:59:60+00:00 is a leap second"),
        ] {
            let error = expiry.check(Some(on)).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
