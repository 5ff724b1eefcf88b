//! Times and durations as people write them. What can be read in two ways is refused, never guessed.

use std::time::Duration;

use chrono::{DateTime, LocalResult, NaiveDateTime, TimeZone, Utc};
use interim::{Dialect, parse_date_string};

/// The instant that `text` stands for, seen from `now` in the zone of the person at the keyboard: RFC 3339
/// (`2026-11-21T10:00:00Z`), a local time (`2026-11-21 10:00`, `tomorrow 03:00`), or a distance (`+30m`).
///
/// # Errors
/// A sentence that says what is wrong and what would be understood.
pub fn parse_instant<Zone: TimeZone>(text: &str, now: &DateTime<Zone>) -> Result<DateTime<Utc>, String> {
    let text = text.trim();
    if let Some(distance) = text.strip_prefix('+') {
        let distance = parse_duration(distance)?;
        return after(now, distance).ok_or_else(|| format!("\"{text}\" lies too far ahead"));
    }
    if let Ok(instant) = DateTime::parse_from_rfc3339(text) {
        return Ok(instant.with_timezone(&Utc));
    }
    refuse_ambiguous(text)?;
    // A pretended UTC keeps the library from resolving the zone: whether a local time exists, once or twice, is
    // decided below.
    let pretended = now.naive_local().and_utc();
    let local = parse_date_string(&as_the_library_reads_it(text)?, pretended, Dialect::Uk).map_err(|error| {
        format!("\"{text}\" is no time ({error}); write 2026-11-21T10:00:00Z, \"2026-11-21 10:00\", \"tomorrow 03:00\" or +30m")
    })?;
    resolve_local(text, local.naive_utc(), &now.timezone())
}

/// The library panics at a capital letter after a number (`8PM`) and at words longer than all that it knows. Only the T
/// between a date and its time must be a capital.
fn as_the_library_reads_it(text: &str) -> Result<String, String> {
    /// Of the longest word that the library can hold.
    const LONGEST_WORD: usize = 15;
    if let Some(word) = text.split(|c: char| !c.is_ascii_alphabetic()).find(|word| word.len() > LONGEST_WORD) {
        return Err(format!("\"{text}\" is no time: nothing is known of \"{word}\""));
    }
    let mut lower = text.to_ascii_lowercase();
    let begins_with_date = text
        .bytes()
        .take(10)
        .enumerate()
        .all(|(at, byte)| if at == 4 || at == 7 { byte == b'-' } else { byte.is_ascii_digit() });
    if begins_with_date && text.as_bytes().get(10) == Some(&b'T') {
        lower.replace_range(10..11, "T");
    }
    Ok(lower)
}

fn after<Zone: TimeZone>(now: &DateTime<Zone>, distance: Duration) -> Option<DateTime<Utc>> {
    let distance = chrono::TimeDelta::from_std(distance).ok()?;
    now.with_timezone(&Utc).checked_add_signed(distance)
}

fn refuse_ambiguous(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("the time is empty".to_owned());
    }
    if text.contains('/') {
        return Err(format!("\"{text}\" can be read as day/month or month/day; write the date as 2026-11-21"));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(format!("\"{text}\" has no unit; write +{text}s, +{text}m, or a time like 10:00"));
    }
    Ok(())
}

fn resolve_local<Zone: TimeZone>(text: &str, local: NaiveDateTime, zone: &Zone) -> Result<DateTime<Utc>, String> {
    match zone.from_local_datetime(&local) {
        LocalResult::Single(instant) => Ok(instant.with_timezone(&Utc)),
        LocalResult::Ambiguous(first, second) => Err(format!(
            "\"{text}\" happens twice when the clocks are set back; write {} or {}",
            first.with_timezone(&Utc).to_rfc3339(),
            second.with_timezone(&Utc).to_rfc3339()
        )),
        LocalResult::None => Err(format!("\"{text}\" does not happen: the clocks are set forward over it")),
    }
}

/// The duration that `text` stands for: `90s`, `30m`, `2h 30m`, `1d`.
///
/// # Errors
/// No unit, a negative number, or more than ten years.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let duration = humantime::parse_duration(text)
        .map_err(|error| format!("\"{text}\" is no duration ({error}); write 90s, 30m, 2h30m or 1d"))?;
    if duration > Duration::from_secs(10 * 366 * 86_400) {
        return Err(format!("\"{text}\" is longer than ten years"));
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::FixedOffset;

    fn now() -> DateTime<FixedOffset> {
        DateTime::parse_from_rfc3339("2026-11-21T12:00:00+02:00").unwrap()
    }

    fn instant(text: &str) -> String {
        parse_instant(text, &now()).map_or_else(|error| error, |at| at.format("%FT%TZ").to_string())
    }

    #[test]
    fn times_are_read_in_the_zone_of_the_person() {
        assert_eq!(instant("2026-11-21T12:30:00Z"), "2026-11-21T12:30:00Z");
        assert_eq!(instant("2026-11-21T12:30:00+02:00"), "2026-11-21T10:30:00Z");
        assert_eq!(instant("2026-11-21 12:30"), "2026-11-21T10:30:00Z");
        assert_eq!(instant("tomorrow 03:00"), "2026-11-22T01:00:00Z");
        assert_eq!(instant("+30m"), "2026-11-21T10:30:00Z");
        assert_eq!(instant("+2h30m"), "2026-11-21T12:30:00Z");
    }

    #[test]
    fn capital_letters_and_endless_words_are_read_or_refused_and_never_a_crash() {
        assert_eq!(instant("Tomorrow 8PM"), "2026-11-22T18:00:00Z");
        assert_eq!(instant("2026-11-21T12:30"), "2026-11-21T10:30:00Z");
        for text in ["last mon3 dXy", "tomorrow 03A:00", "tomorrow 10T5", "8 abcdefghijklmnop", "10:00 P"] {
            assert!(parse_instant(text, &now()).is_err(), "{text}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for text in ["4/1", "04/05/2026", "5", "1700000000", "", "30"] {
            assert!(parse_instant(text, &now()).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused_with_examples() {
        for text in ["soonish", "2026-13-01 10:00", "25:99", "+x", "+-5m", "+99999999d"] {
            let error = parse_instant(text, &now()).unwrap_err();
            assert!(error.contains('"'), "{error}");
        }
    }

    #[test]
    fn a_duration_needs_a_unit() {
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("2h30m"), Ok(Duration::from_secs(9000)));
        assert_eq!(parse_duration("1.5h"), Ok(Duration::from_secs(5400)));
        for bad in ["90", "-5s", "", "soon", "11y"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
