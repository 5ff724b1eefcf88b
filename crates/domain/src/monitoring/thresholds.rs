//! Monitoring thresholds: above which values to warn and to report critical, following the guidelines of Nagios plugins.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::time::when::parse_duration;

/// The severity of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Within the thresholds.
    #[default]
    Ok,
    /// Above the warning threshold.
    Warning,
    /// Above the critical threshold.
    Critical,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
        })
    }
}

/// The thresholds of a value: `CRITICAL`, or `WARNING,CRITICAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AtMost {
    /// Higher values are a warning; `None` never warns.
    pub warning: Option<i64>,
    /// Higher values are critical.
    pub critical: i64,
}

impl AtMost {
    /// Parses one or two numbers.
    fn parse(text: &str, number: impl Fn(&str) -> Result<i64, String>) -> Result<Self, String> {
        let (warning, critical) = match text.split_once(',') {
            Some((warning, critical)) => (Some(number(warning.trim())?), number(critical.trim())?),
            None => (None, number(text.trim())?),
        };
        if warning.is_some_and(|warning| warning > critical) {
            return Err("the first limit is above the second: write WARNING,CRITICAL".to_owned());
        }
        Ok(Self { warning, critical })
    }

    /// Parses one or two durations, into seconds.
    ///
    /// # Errors
    /// A part is not a duration.
    pub fn parse_secs(text: &str) -> Result<Self, String> {
        Self::parse(text, |part| {
            let duration = parse_duration(part)?;
            Ok(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX))
        })
    }

    /// Returns the severity of this value.
    #[must_use]
    pub fn level(self, value: i64) -> Level {
        if value > self.critical {
            Level::Critical
        } else if self.warning.is_some_and(|warning| value > warning) {
            Level::Warning
        } else {
            Level::Ok
        }
    }
}

impl FromStr for AtMost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text, |part| match part.parse::<i64>() {
            Ok(number) if number >= 0 => Ok(number),
            _ => Err(format!("\"{part}\" is not a number of 0 or more")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_judged_by_the_limits_beyond_which_it_lies() {
        let both: AtMost = "5,10".parse().unwrap();
        let levels = [5, 6, 10, 11].map(|value| both.level(value));
        assert_eq!(levels, [Level::Ok, Level::Warning, Level::Warning, Level::Critical]);
        let one: AtMost = "0".parse().unwrap();
        assert_eq!([0, 1].map(|value| one.level(value)), [Level::Ok, Level::Critical]);
    }

    #[test]
    fn limits_are_read_as_numbers_or_as_durations() {
        assert_eq!(AtMost::parse_secs("5m, 1h"), Ok(AtMost { warning: Some(300), critical: 3_600 }));
        for bad in ["", "x", "-1", "10,5", "5,"] {
            assert!(bad.parse::<AtMost>().is_err(), "{bad}");
        }
        assert!(AtMost::parse_secs("soon").is_err());
    }
}
