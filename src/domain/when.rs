//! Times and durations as people write them. What can be read in two ways is refused, never guessed.

mod shape;

use std::fmt::Display;
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
    let no_time = |why: &dyn Display| {
        format!(
            "\"{text}\" is no time ({why}); write 2026-11-21T10:00:00Z, \"2026-11-21 10:00\", \"tomorrow 03:00\" or +30m"
        )
    };
    if let Ok(instant) = DateTime::parse_from_rfc3339(text)
        && shape::is_offset(instant.offset().local_minus_utc())
    {
        return Ok(instant.with_timezone(&Utc));
    }
    refuse_ambiguous(text)?;
    shape::check(&text.to_ascii_lowercase()).map_err(|why| no_time(&why))?;
    // A pretended UTC keeps the library from resolving the zone: whether a local time exists, once or twice, is
    // decided below.
    let pretended = now.naive_local().and_utc();
    let local =
        parse_date_string(&as_the_library_reads_it(text), pretended, Dialect::Uk).map_err(|error| no_time(&error))?;
    resolve_local(text, local.naive_utc(), &now.timezone())
}

/// The library panics at a capital letter after a number (`8PM`). Only the T between a date and its time must be a capital.
fn as_the_library_reads_it(text: &str) -> String {
    let mut lower = text.to_ascii_lowercase();
    let begins_with_date = text
        .bytes()
        .take(10)
        .enumerate()
        .all(|(at, byte)| if at == 4 || at == 7 { byte == b'-' } else { byte.is_ascii_digit() });
    if begins_with_date && text.as_bytes().get(10) == Some(&b'T') {
        lower.replace_range(10..11, "T");
    }
    lower
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
    fn words_and_forms_that_are_known_are_taken() {
        for (text, at) in [
            ("now", "2026-11-21T10:00:00Z"),
            ("2026-12-01", "2026-11-30T22:00:00Z"),
            ("2026-12-01 23:59:59", "2026-12-01T21:59:59Z"),
            ("2026-12-01T00:00", "2026-11-30T22:00:00Z"),
            ("yesterday 10:00", "2026-11-20T08:00:00Z"),
            ("3 days", "2026-11-24T10:00:00Z"),
            ("3 weeks 10:00", "2026-12-12T08:00:00Z"),
            ("2 hours ago", "2026-11-21T08:00:00Z"),
            ("4 july 2027", "2027-07-03T22:00:00Z"),
            ("july 4, 2027 10:30", "2027-07-04T08:30:00Z"),
            ("next mon 9am", "2026-11-30T07:00:00Z"),
            ("Friday 12:15 pm", "2026-11-27T10:15:00Z"),
            ("8.30pm", "2026-11-21T18:30:00Z"),
            ("2027-11-21T10:00:00+14:00", "2027-11-20T20:00:00Z"),
        ] {
            assert_eq!(instant(text), at, "{text}");
        }
    }

    #[test]
    fn what_only_resembles_a_time_is_refused_and_the_reason_is_given() {
        for (text, why) in [
            ("2026-12-01 25:00", "the hour is 25"),
            ("25:00", "the hour is 25"),
            ("tomorrow 24:00", "the hour is 24"),
            ("13pm", "the hour is 13"),
            ("10:60", "the minute is 60"),
            ("10:5", "two digits"),
            ("yesterdayy", "\"yesterdayy\""),
            ("mondaay 10:00", "\"mondaay\""),
            ("3 daz", "\"daz\""),
            ("3 weeeks", "\"weeeks\""),
            ("Weds 10:00", "\"weds\""),
            ("8 abcdefghijklmnop", "\"abcdefghijklmnop\""),
            ("2027-11-21T10:00:00+25:00", "14:00 from UTC"),
            ("2027-11-21T10:00:00+14:01", "14:00 from UTC"),
            ("2027-11-21 10:00+02", "+02:00"),
            ("10:00 pm monday", "behind the time of day"),
            ("3 hours 10:00", "no time of day"),
            ("4 july monday", "no form of a date"),
            ("last 3 days", "no form of a date"),
            ("july tomorrow", "no form of a date"),
            ("5 mon", "no form of a date"),
            ("hours", "no form of a date"),
            ("next", "no form of a date"),
            ("next tomorrow", "no form of a date"),
            ("10 july 8", "no form of a date"),
        ] {
            let error = parse_instant(text, &now()).unwrap_err();
            assert!(error.contains(why) && error.contains("is no time"), "{text}: {error}");
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
