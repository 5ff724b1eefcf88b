//! Times and durations as users write them. Ambiguous input is rejected, never guessed.

use std::time::Duration;

use chrono::{DateTime, LocalResult, NaiveDateTime, TimeDelta, TimeZone, Utc};
use jiff::Zoned;
use jiff::tz::{Offset, TimeZone as PretendedZone};
use parse_datetime::parse_datetime_at_date;

/// Whether a time is in the future or in the past.
#[derive(Clone, Copy)]
enum Side {
    Ahead,
    Behind,
}

impl Side {
    /// Returns examples of accepted input.
    const fn examples(self) -> &'static str {
        match self {
            Self::Ahead => "write 2026-11-21T10:00:00Z, \"2026-11-21 10:00\", \"tomorrow 03:00\" or +30m",
            Self::Behind => "write 2026-11-21T10:00:00Z, \"2026-11-21 10:00\", \"yesterday 10:00\" or \"30m ago\"",
        }
    }

    /// Returns the sign before a distance.
    const fn sign(self) -> &'static str {
        match self {
            Self::Ahead => "+",
            Self::Behind => "",
        }
    }
}

/// Parses an instant, relative to `now` in the user's zone. Accepts RFC 3339 (`2026-11-21T10:00:00Z`) and distances (`+30m`, `in
/// 2 hours`, `3 days ago`). Also accepts local times as GNU `date -d` reads them (`2026-11-21 10:00`, `tomorrow 03:00`, `next
/// monday 9am`).
///
/// # Errors
/// What is wrong and which input is accepted, as a sentence.
pub fn parse_instant<Zone: TimeZone>(text: &str, now: &DateTime<Zone>) -> Result<DateTime<Utc>, String> {
    instant_on(Side::Ahead, text, now)
}

/// Parses an instant in the past: a duration alone (`30m`) means that long ago.
///
/// # Errors
/// As for [`parse_instant`].
pub fn parse_past<Zone: TimeZone>(text: &str, now: &DateTime<Zone>) -> Result<DateTime<Utc>, String> {
    let ago = parse_duration(text).ok().and_then(|ago| TimeDelta::from_std(ago).ok());
    match ago.and_then(|ago| now.to_utc().checked_sub_signed(ago)) {
        Some(instant) => Ok(instant),
        None => instant_on(Side::Behind, text, now),
    }
}

fn instant_on<Zone: TimeZone>(side: Side, text: &str, now: &DateTime<Zone>) -> Result<DateTime<Utc>, String> {
    let text = text.trim();
    if let Some(distance) = text.strip_prefix('+') {
        let distance = parse_duration(distance)?;
        return after(now, distance).ok_or_else(|| format!("\"{text}\" is too far ahead"));
    }
    if let Some(instant) = parse_distance(text, now) {
        return Ok(instant);
    }
    let examples = side.examples();
    let no_time = || format!("\"{text}\" is not a time; {examples}");
    if let Ok(instant) = DateTime::parse_from_rfc3339(text) {
        let instant = instant.with_timezone(&Utc);
        return if is_leap_second(instant) { Err(no_time()) } else { Ok(instant) };
    }
    refuse_ambiguous(side, text)?;
    match parse_date(text, now.naive_local()) {
        Some(Date::Instant(instant)) if says_zone(text) => Ok(instant),
        Some(Date::Local(local)) => resolve_local(text, local, &now.timezone()),
        Some(Date::Instant(_)) => Err(format!("\"{text}\" has an ambiguous abbreviation of a time zone; {examples}")),
        None => Err(no_time()),
    }
}

/// Returns true for `23:59:60`, which not every engine stores. For chrono it is the second before, with a fraction of one or more.
pub(crate) fn is_leap_second(instant: DateTime<Utc>) -> bool {
    instant.timestamp_subsec_nanos() >= 1_000_000_000
}

/// Parses an instant at which something starts. Rejects a time of day, or a day without a year, that has passed, because the next
/// one may be meant.
///
/// # Errors
/// As for [`parse_instant`].
pub fn parse_start<Zone: TimeZone>(text: &str, now: &DateTime<Zone>) -> Result<DateTime<Utc>, String> {
    let instant = parse_instant(text, now)?;
    let text = text.trim();
    let is_said = text.contains("ago") || text.contains("yesterday") || text.contains("last") || has_year(text);
    if instant < now.with_timezone(&Utc) && !is_said && text != "now" {
        return Err(format!("\"{text}\" has passed; write the date with its year, or \"tomorrow 03:00\""));
    }
    Ok(instant)
}

/// A parsed text that is not a distance.
enum Date {
    Instant(DateTime<Utc>),
    Local(NaiveDateTime),
}

/// Parses `now`, or a distance in units of fixed length, with `in` and `ago`; clock changes do not affect it.
fn parse_distance<Zone: TimeZone>(text: &str, now: &DateTime<Zone>) -> Option<DateTime<Utc>> {
    if text == "now" {
        return Some(now.to_utc());
    }
    let ahead = text.strip_prefix("in ").unwrap_or(text);
    match ahead.strip_suffix(" ago") {
        Some(ago) => now.to_utc().checked_sub_signed(TimeDelta::from_std(parse_duration(ago).ok()?).ok()?),
        None => after(now, parse_duration(ahead).ok()?),
    }
}

/// Evaluates the text in two pretended zones: if both give the same instant, the text names its zone; otherwise it is a local
/// time. The caller decides whether a local time exists, once or twice.
fn parse_date(text: &str, now: NaiveDateTime) -> Option<Date> {
    let text = text.replace(" at ", " ");
    let now: jiff::civil::DateTime = now.format("%FT%T%.9f").to_string().parse().ok()?;
    let seen_from = |hours| -> Option<Zoned> {
        let zone = PretendedZone::fixed(Offset::constant(hours));
        parse_datetime_at_date(now.to_zoned(zone).ok()?, &text).ok()?.into_zoned()
    };
    let (first, second) = (seen_from(0)?, seen_from(5)?);
    if first.timestamp() == second.timestamp() {
        return DateTime::from_timestamp_micros(first.timestamp().as_microsecond()).map(Date::Instant);
    }
    first.datetime().to_string().parse().ok().map(Date::Local)
}

/// Returns true if it ends with an unambiguous zone: Z, UTC, GMT, or an offset from UTC.
fn says_zone(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let before_word = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    // A time of day ends with a digit, or with am or pm behind one.
    let is_behind_time = |before: &str| {
        let before = before.trim_end();
        let hour = before.strip_suffix("am").or_else(|| before.strip_suffix("pm"));
        hour.unwrap_or(before).trim_end().ends_with(|c: char| c.is_ascii_digit())
    };
    if before_word.len() < lower.len() {
        return matches!(&lower[before_word.len()..], "z" | "utc" | "gmt") && is_behind_time(before_word);
    }
    let sign = lower.trim_end_matches(|c: char| c.is_ascii_digit() || c == ':');
    sign.strip_suffix(['+', '-']).is_some_and(is_behind_time)
}

fn has_year(text: &str) -> bool {
    let digits = |word: &str| word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_digit());
    text.split(|c: char| !c.is_ascii_alphanumeric()).any(digits) || text.get(..4).is_some_and(digits)
}

fn after<Zone: TimeZone>(now: &DateTime<Zone>, distance: Duration) -> Option<DateTime<Utc>> {
    let distance = TimeDelta::from_std(distance).ok()?;
    now.with_timezone(&Utc).checked_add_signed(distance)
}

fn refuse_ambiguous(side: Side, text: &str) -> Result<(), String> {
    let two_ways = |why: &str| Err(format!("\"{text}\" {why}"));
    if text.is_empty() {
        return Err("the time is empty".to_owned());
    }
    if text.contains('/') {
        return two_ways("can be read as day/month or month/day; write the date as 2026-11-21");
    }
    if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        let sign = side.sign();
        return Err(format!("\"{text}\" has no unit; write {sign}{text}s, {sign}{text}m, or a time like 10:00"));
    }
    let has_digit = text.contains(|c: char| c.is_ascii_digit());
    let mut words = text.split_whitespace();
    if words.clone().any(|word| word == "this") || (!has_digit && words.next().is_some_and(is_unit)) {
        return two_ways(&format!("has no time; {}", side.examples()));
    }
    let minutes = text.split(':').skip(1);
    if minutes.map(|rest| rest.bytes().take_while(u8::is_ascii_digit).count()).any(|digits| digits != 2) {
        return two_ways("is not a time; minutes and seconds have two digits");
    }
    Ok(())
}

fn is_unit(word: &str) -> bool {
    let singular = word.strip_suffix('s').unwrap_or(word);
    matches!(singular, "sec" | "second" | "min" | "minute" | "hour" | "day" | "week" | "fortnight" | "month" | "year")
}

fn resolve_local<Zone: TimeZone>(text: &str, local: NaiveDateTime, zone: &Zone) -> Result<DateTime<Utc>, String> {
    match zone.from_local_datetime(&local) {
        LocalResult::Single(instant) => Ok(instant.with_timezone(&Utc)),
        LocalResult::Ambiguous(first, second) => Err(format!(
            "\"{text}\" happens twice when the clocks are set back; write {} or {}",
            first.with_timezone(&Utc).to_rfc3339(),
            second.with_timezone(&Utc).to_rfc3339()
        )),
        LocalResult::None => Err(format!("\"{text}\" does not exist: the clocks are set forward over it")),
    }
}

/// Parses a duration: `90s`, `30m`, `2h 30m`, `1d`.
///
/// # Errors
/// It has no unit, a unit without a fixed length, a negative number, or exceeds ten years.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if !text.is_empty() && text != "0" && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("\"{text}\" has no unit; write {text}s, {text}m, {text}h or {text}d"));
    }
    let duration = humantime::parse_duration(text)
        .map_err(|_| format!("\"{text}\" is not a duration; write 90s, 30m, 2h30m or 1d"))?;
    let is_calendar = |word: &str| word == "M" || word.starts_with('y') || word.starts_with("mon");
    if text.split(|c: char| !c.is_ascii_alphabetic()).any(is_calendar) {
        return Err(format!("\"{text}\" has no fixed length; write it in days: 30d, 365d"));
    }
    if duration > Duration::from_secs(10 * 366 * 86_400) {
        return Err(format!("\"{text}\" is longer than ten years"));
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::super::time_zone::Zone;
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
    fn words_and_forms_that_are_known_are_taken() {
        for (text, at) in [
            ("now", "2026-11-21T10:00:00Z"),
            ("2026-12-01", "2026-11-30T22:00:00Z"),
            ("2026-12-01 23:59:59", "2026-12-01T21:59:59Z"),
            ("2026-12-01T00:00", "2026-11-30T22:00:00Z"),
            ("2026-12-01t00:00", "2026-11-30T22:00:00Z"),
            ("yesterday 10:00", "2026-11-20T08:00:00Z"),
            ("tomorrow", "2026-11-22T10:00:00Z"),
            ("tomorrow at 9:00", "2026-11-22T07:00:00Z"),
            ("Tomorrow 8PM", "2026-11-22T18:00:00Z"),
            ("tomorrow 12pm", "2026-11-22T10:00:00Z"),
            ("tomorrow 12am", "2026-11-21T22:00:00Z"),
            ("3 days", "2026-11-24T10:00:00Z"),
            ("in 2 hours", "2026-11-21T12:00:00Z"),
            ("2h30m", "2026-11-21T12:30:00Z"),
            ("2 hours ago", "2026-11-21T08:00:00Z"),
            ("3 weeks 10:00", "2026-12-12T08:00:00Z"),
            ("2 months", "2027-01-21T10:00:00Z"),
            ("4 july 2027", "2027-07-03T22:00:00Z"),
            ("july 4, 2027 10:30", "2027-07-04T08:30:00Z"),
            ("Friday 12:15 pm", "2026-11-27T10:15:00Z"),
            ("monday", "2026-11-22T22:00:00Z"),
        ] {
            assert_eq!(instant(text), at, "{text}");
        }
    }

    #[test]
    fn a_zone_that_is_named_counts_and_is_one_that_cannot_be_mistaken() {
        for (text, at) in [
            ("2026-11-21T10:00Z", "2026-11-21T10:00:00Z"),
            ("2026-11-21 10:00+05:00", "2026-11-21T05:00:00Z"),
            ("2026-11-21 10:00 -0330", "2026-11-21T13:30:00Z"),
            ("2027-11-21T10:00:00+14:00", "2027-11-20T20:00:00Z"),
            ("10:00Z", "2026-11-21T10:00:00Z"),
            ("tomorrow 10:00 UTC", "2026-11-22T10:00:00Z"),
            ("tomorrow 2am UTC", "2026-11-22T02:00:00Z"),
            ("monday 9AM GMT", "2026-11-23T09:00:00Z"),
            ("tomorrow 2:30 pm Z", "2026-11-22T14:30:00Z"),
        ] {
            assert_eq!(instant(text), at, "{text}");
        }
        for text in [
            "2026-12-01 10:00 CET",
            "2026-12-01 CET 10:00",
            "CET 10:00",
            "10:00 EST-5",
            "10:00 IST",
            "yesterdayy",
            "tomorroww",
            "tomorrow 10:00 a",
            "tomorrow 9am IST",
            "tomorrow am UTC",
        ] {
            let error = parse_instant(text, &now()).unwrap_err();
            assert!(error.contains("zone") || error.contains("is not a time"), "{text}: {error}");
        }
    }

    #[test]
    fn distances_are_exact_where_the_clocks_change_meanwhile() {
        // An hour before the clocks in Berlin are set back.
        let now = Zone::named("Europe/Berlin").unwrap().with_ymd_and_hms(2026, 10, 25, 1, 30, 0).unwrap();
        for (text, at) in [
            ("now", "2026-10-24T23:30:00Z"),
            ("1 hour", "2026-10-25T00:30:00Z"),
            ("in 2h", "2026-10-25T01:30:00Z"),
            ("+3h", "2026-10-25T02:30:00Z"),
            ("1h ago", "2026-10-24T22:30:00Z"),
        ] {
            assert_eq!(parse_instant(text, &now).unwrap().format("%FT%TZ").to_string(), at, "{text}");
        }
        assert!(parse_instant("02:30", &now).unwrap_err().contains("happens twice"));
        let first = now.clone() + TimeDelta::hours(1);
        assert_eq!(parse_instant("now", &first).unwrap(), first);
    }

    #[test]
    fn what_only_resembles_a_time_is_refused() {
        for text in [
            "2026-12-01 25:00",
            "25:00",
            "tomorrow 24:00",
            "13pm",
            "10:60",
            "10:5",
            "10:5:00",
            "mondaay 10:00",
            "3 daz",
            "3 weeeks",
            "8 abcdefghijklmnop",
            "2027-11-21T10:00:00+25:00",
            "last 3 days",
            "july tomorrow",
            "hours",
            "this month",
            "this week",
            "next",
            "last mon3 dXy",
            "tomorrow 03A:00",
            "tomorrow 10T5",
            "10:00 P",
            "2026-02-30",
            "soonish",
            "2026-13-01 10:00",
            // Leap seconds.
            "2026-12-31T23:59:60Z",
            "2026-12-31T23:59:60.5+02:00",
            "2026-12-31 23:59:60Z",
            "2026-12-31 23:59:60",
            "23:59:60 UTC",
        ] {
            let parsed = parse_instant(text, &now());
            assert!(parsed.is_err(), "{text}: {parsed:?}");
            assert!(parsed.unwrap_err().contains('"'), "{text}");
        }
    }

    #[test]
    fn what_has_happened_is_looked_for_behind_now() {
        let past =
            |text: &str| parse_past(text, &now()).map_or_else(|error| error, |at| at.format("%FT%TZ").to_string());
        for text in ["30m", "30m ago", "11:30", "2026-11-21T09:30:00Z"] {
            assert_eq!(past(text), "2026-11-21T09:30:00Z", "{text}");
        }
        for bad in ["foo", "hours", "10:00 CET"] {
            let error = past(bad);
            assert!(error.ends_with("\"yesterday 10:00\" or \"30m ago\"") && !error.contains('+'), "{error}");
        }
        assert_eq!(past("30"), "\"30\" has no unit; write 30s, 30m, or a time like 10:00");
        assert_eq!(instant("30"), "\"30\" has no unit; write +30s, +30m, or a time like 10:00");
    }

    #[test]
    fn what_is_to_start_is_not_to_start_at_once_because_its_time_has_passed() {
        for text in ["08:00", "november 5", "10am", "saturday 01:00"] {
            let error = parse_start(text, &now()).unwrap_err();
            assert!(error.contains("has passed"), "{text}: {error}");
        }
        for text in
            ["2020-01-01 10:00", "2020-01-01T00:00:00Z", "4 july 2020", "yesterday 10:00", "1h ago", "13:00", "now"]
        {
            assert!(parse_start(text, &now()).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for text in ["4/1", "04/05/2026", "5", "1700000000", "", "30"] {
            assert!(parse_instant(text, &now()).is_err(), "{text}");
        }
    }

    #[test]
    fn distances_that_are_none_are_refused() {
        for text in ["+x", "+-5m", "+99999999d", "+2 months"] {
            let error = parse_instant(text, &now()).unwrap_err();
            assert!(error.contains('"'), "{error}");
        }
    }

    #[test]
    fn a_duration_needs_a_unit() {
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("2h30m"), Ok(Duration::from_secs(9000)));
        assert_eq!(parse_duration("1.5h"), Ok(Duration::from_secs(5400)));
        for bad in ["90", "-5s", "", "soon", "11y", "1year", "2 months", "3M", "4000d"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
