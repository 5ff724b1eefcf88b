//! Checks of single values of a task.

use chrono::{DateTime, Datelike as _, Utc};

use crate::time::when::is_leap_second;

/// Returns the number as the tables store it.
///
/// # Errors
/// It is outside this range, both ends included.
pub(crate) fn in_range(name: &str, value: Option<i64>, low: i64, high: i64) -> Result<Option<i32>, String> {
    let Some(value) = value else { return Ok(None) };
    if !(low..=high).contains(&value) {
        return Err(format!("{name} is {value}; it must be {low} to {high}"));
    }
    Ok(i32::try_from(value).ok())
}

/// Checks that every engine can store the instant and that it is plausible.
///
/// # Errors
/// The instant is outside the years 2000 to 9999, or is a leap second.
pub fn validate_instant(when: DateTime<Utc>) -> Result<(), String> {
    let problem = match when {
        _ if !(2000..=9999).contains(&when.year()) => "outside the years 2000 to 9999",
        _ if is_leap_second(when) => "a leap second, which not every engine can store",
        _ => return Ok(()),
    };
    Err(format!("{} is {problem}", when.to_rfc3339()))
}
