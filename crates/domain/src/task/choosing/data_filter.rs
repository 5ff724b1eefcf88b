//! Filters of a selection that no column answers: values in the data of a task, and times in words.

use std::collections::HashMap;
use std::str::FromStr;

use chrono::{DateTime, TimeZone, Utc};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::time::when::parse_past;

/// A condition on the data of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataFilter {
    /// `data~TEXT`: the JSON text, as it is stored, contains this text.
    Contains(String),
    /// `data.NAME=VALUE`: the value under this name is this string, or another JSON value that is written like this text.
    Value {
        /// Names of members, from the outermost to the innermost; a number also means a place in an array.
        path: Vec<String>,
        /// The value.
        value: String,
    },
}

impl DataFilter {
    /// Returns the filter for a value under a name like `order.id`.
    pub(crate) fn value(path: &str, value: &str) -> Result<Self, String> {
        if path.split('.').any(str::is_empty) {
            return Err(format!("\"data.{path}=\" names no value; write data.order=17 or data.customer.id=17"));
        }
        Ok(Self::Value { path: path.split('.').map(str::to_owned).collect(), value: value.to_owned() })
    }

    /// Returns true if the data matches.
    #[must_use]
    pub fn matches(&self, data: &str) -> bool {
        match self {
            Self::Contains(text) => data.contains(text.as_str()),
            Self::Value { path, value } => has(data, path, value).unwrap_or(false),
        }
    }

    /// Returns a text that the data of every matching task contains, for the database to search first; `None` if a match may be
    /// written in several ways.
    #[must_use]
    pub fn contained(&self) -> Option<&str> {
        let (Self::Contains(text) | Self::Value { value: text, .. }) = self;
        // Everything else may be escaped in JSON, or is a wildcard of LIKE. A number has several spellings.
        let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '@' | ' '));
        let is_number =
            matches!(self, Self::Value { .. }) && text.parse::<f64>().is_ok() && text.parse::<i64>().is_err();
        (is_plain && !is_number).then_some(text)
    }
}

/// Returns `None` if the data has nothing under this path.
fn has(data: &str, path: &[String], value: &str) -> Option<bool> {
    let found = path.iter().try_fold(data, |data, name| {
        let found: Option<&RawValue> = match serde_json::from_str::<Vec<&RawValue>>(data) {
            Ok(items) => items.get(name.parse::<usize>().ok()?).copied(),
            Err(_) => serde_json::from_str::<HashMap<String, &RawValue>>(data).ok()?.get(name).copied(),
        };
        found.map(RawValue::get)
    })?;
    // A number that has no exact value here is compared as it is written.
    Some(match serde_json::from_str(found).ok()? {
        Value::String(text) => text == value,
        other => [found, other.to_string().as_str()].contains(&value),
    })
}

/// A time in the past as it was written: `1d`, `yesterday`, `2026-11-21 10:00`. Read by the clock of the database and in the zone of
/// the process when the selection is evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Since(String);

impl Since {
    /// Returns the time, relative to `now`. A time that lies ahead means `now`.
    #[must_use]
    pub fn instant<Zone: TimeZone>(&self, now: &DateTime<Zone>) -> DateTime<Utc> {
        parse_past(&self.0, now).unwrap_or_else(|_| now.to_utc())
    }
}

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let late = Utc.with_ymd_and_hms(9999, 1, 1, 0, 0, 0).single().unwrap_or(DateTime::<Utc>::MAX_UTC);
        parse_past(text, &late)?;
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn data_matches_by_path_and_value_or_by_text() {
        let data = r#"{"order":17,"to":"ann","items":[{"id":"a-1"}],"ok":true,"price":1.50}"#;
        let value = |path, value| DataFilter::value(path, value).unwrap().matches(data);
        assert!(value("order", "17") && value("to", "ann") && value("items.0.id", "a-1") && value("ok", "true"));
        assert!(!value("order", "1") && !value("to", "\"ann\"") && !value("items.1.id", "a-1") && !value("no", "17"));
        assert!(
            DataFilter::Contains("a-1".to_owned()).matches(data) && !DataFilter::Contains("b".to_owned()).matches(data)
        );
        let (id, large) = ("18446744073709551617", r#"{"id":18446744073709551617,"n":[0.10000000000000000001]}"#);
        assert!(DataFilter::value("id", id).unwrap().matches(large) && value("price", "1.50") && value("price", "1.5"));
        assert!(!DataFilter::value("id", "18446744073709551616").unwrap().matches(large));
        assert!(DataFilter::value("n.0", "0.10000000000000000001").unwrap().matches(large));
        assert!(DataFilter::value("", "1").is_err() && DataFilter::value("a..b", "1").is_err());
    }

    #[test]
    fn the_database_searches_only_what_is_written_in_one_way() {
        let of = |path, value| DataFilter::value(path, value).unwrap().contained().map(str::to_owned);
        assert_eq!(of("to", "ann@example.org"), Some("ann@example.org".to_owned()));
        assert_eq!((of("price", "1.5"), of("to", "m\u{fc}ller"), of("to", "50%")), (None, None, None));
        assert_eq!(of("order", "17"), Some("17".to_owned()));
    }

    #[test]
    fn a_time_in_the_past_is_read_when_it_is_needed() {
        let now = Utc.with_ymd_and_hms(2030, 5, 5, 12, 0, 0).unwrap();
        let since = |text: &str| text.parse::<Since>().unwrap().instant(&now);
        assert_eq!(since("2h"), Utc.with_ymd_and_hms(2030, 5, 5, 10, 0, 0).unwrap());
        assert_eq!(since("2030-05-04T00:00:00Z"), Utc.with_ymd_and_hms(2030, 5, 4, 0, 0, 0).unwrap());
        assert!(since("yesterday") < now);
        assert!("someday".parse::<Since>().is_err());
    }
}
