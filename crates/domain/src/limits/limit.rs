//! Limits of a class: how many of its runs may be processed at once, and how many may start in a period. Limits of a limit key:
//! how many runs with the key, of any class, may be processed at once.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use crate::limits::pause::Pause;
use crate::time::when::parse_duration;

/// The highest limit of simultaneous runs of a class.
pub const MAX_RUNNING: i32 = 1_000_000;
/// The highest number of starts of a rate: a claim reads that many starts.
pub const MAX_RATE_COUNT: i32 = 10_000;
/// The longest period of a rate: a day.
pub const MAX_RATE_SECS: i32 = 86_400;

/// A limit of `count` starts in any period of `secs` seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rate {
    /// The number of starts.
    pub count: i32,
    /// The period, in seconds.
    pub secs: i32,
}

impl Rate {
    /// Returns the seconds from the first start to the start at this index, counted from 0, if starts are evenly spaced.
    #[must_use]
    pub fn secs_until(self, place: usize) -> i64 {
        let place = i64::try_from(place).unwrap_or(i64::MAX);
        place.saturating_mul(i64::from(self.secs)) / i64::from(self.count.max(1))
    }

    /// Like [`Self::secs_until`], exact to the microsecond.
    #[must_use]
    pub fn time_until(self, place: usize) -> TimeDelta {
        let micros =
            i64::try_from(place).unwrap_or(i64::MAX).saturating_mul(i64::from(self.secs).saturating_mul(1_000_000));
        TimeDelta::microseconds(micros / i64::from(self.count.max(1)))
    }
}

/// The times of tasks that are queued together, evenly spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// The time of the first task.
    pub start: DateTime<Utc>,
    /// The number of tasks in each period.
    pub rate: Rate,
}

impl Spread {
    /// Returns the time of the task at this index, counted from 0; `None` if it is too far in the future.
    #[must_use]
    pub fn time_of(&self, place: usize) -> Option<DateTime<Utc>> {
        self.start.checked_add_signed(self.rate.time_until(place))
    }
}

impl FromStr for Rate {
    type Err = String;

    /// Reads `100/1m` or `5/1h30m`: the number of starts and the period.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is not a rate; write a number and a time: 100/1m");
        let (count, time) = text.split_once('/').ok_or_else(wrong)?;
        let count: i32 = count.trim().parse().map_err(|_| wrong())?;
        // `100/m` is a common spelling of `100/1m`.
        let time = if time.starts_with(|c: char| c.is_ascii_digit()) { time.to_owned() } else { format!("1{time}") };
        Self::of(count.into(), parse_duration(&time).map_err(|_| wrong())?)
    }
}

impl Rate {
    /// Returns a rate of `count` starts in `time`.
    ///
    /// # Errors
    /// The time is not in whole seconds, or a number is out of range.
    pub fn of(count: i64, time: Duration) -> Result<Self, String> {
        if time.subsec_nanos() != 0 {
            return Err("the time of a rate must be whole seconds".to_owned());
        }
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        let secs = i32::try_from(time.as_secs()).unwrap_or(i32::MAX);
        if !(1..=MAX_RATE_COUNT).contains(&count) || !(1..=MAX_RATE_SECS).contains(&secs) {
            return Err(format!("a rate is 1 to {MAX_RATE_COUNT} in a time of 1 to {MAX_RATE_SECS} seconds: 100/1m"));
        }
        Ok(Self { count, secs })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}s", self.count, self.secs)
    }
}

/// A row of TaskQueueClassLimits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassLimit {
    /// The class.
    pub class: String,
    /// The limit of simultaneous runs, on all hosts together.
    pub max_running: Option<i32>,
    /// The limit of starts in a period.
    pub rate: Option<Rate>,
}

/// The limit of simultaneous runs with the same limit key, unless an operator set another one for the key.
pub const DEFAULT_KEY_LIMIT: i32 = 1;

/// The highest limit of a key: the slots that are taken are counted repeatedly.
pub const MAX_KEY_RUNNING: i32 = 1_000;

/// A row of TaskQueueKeyLimits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyLimit {
    /// The key.
    pub key: String,
    /// The limit of simultaneous runs with this key, of any class, on all hosts together.
    pub max_running: i32,
}

/// Why a waiting run is not claimed now, although nothing is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// An operator paused it.
    Paused(Box<Pause>),
    /// The limit of simultaneous runs of its class is reached.
    MaxRunning(i32),
    /// The limit of starts of its class is reached; the next run may start at this time.
    Rate(Rate, DateTime<Utc>),
    /// All slots of its limit key are taken.
    KeyIsFull(KeyLimit),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused(pause) => write!(f, "{} is paused by {}", pause.scope, pause.author),
            Self::MaxRunning(max) => write!(f, "its class has reached its limit of {max} running"),
            Self::Rate(rate, _) => write!(f, "its class has reached its rate of {rate}"),
            Self::KeyIsFull(KeyLimit { key, max_running }) => {
                write!(f, "its limit key \"{key}\" allows {max_running} at once, and others are ahead of it")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        let cases = [("100/1m", 100, 60), ("5/s", 5, 1), ("1/1h30m", 1, 5_400), ("10000/24h", 10_000, 86_400)];
        for (text, count, secs) in cases {
            assert_eq!(text.parse(), Ok(Rate { count, secs }), "{text}");
        }
        assert_eq!(Rate { count: 3, secs: 60 }.to_string().parse(), Ok(Rate { count: 3, secs: 60 }));
    }

    #[test]
    fn what_starts_at_a_rate_starts_evenly() {
        let secs = |rate: Rate| (0..5).map(|place| rate.secs_until(place)).collect::<Vec<_>>();
        assert_eq!(secs(Rate { count: 2, secs: 60 }), [0, 30, 60, 90, 120]);
        assert_eq!(secs(Rate { count: 3, secs: 1 }), [0, 0, 0, 1, 1]);
        assert!(Rate { count: 1, secs: 86_400 }.secs_until(usize::MAX) > 0);
        let spread = Spread { start: DateTime::UNIX_EPOCH, rate: Rate { count: 3, secs: 1 } };
        assert_eq!(spread.time_of(4), Some(DateTime::UNIX_EPOCH + TimeDelta::microseconds(1_333_333)));
        let slow = Spread { rate: Rate { count: 1, secs: 1 }, ..spread };
        assert_eq!(slow.time_of(usize::MAX), None);
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in ["", "5", "/1m", "5/", "0/1m", "-1/1m", "10001/1m", "5/25h", "5/1.5s", "5/500ms", "5/0s", "a/1m"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }
}
