//! Times and numbers for display.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

use taskqueue_engine::inspect::status::{Counted, TaskCounts};

/// Formats a time as RFC 3339 in UTC, to the second.
pub fn instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Formats a duration in its two largest units: `45s`, `12m`, `2h05m`, `3d04h`.
pub fn distance(length: TimeDelta) -> String {
    let secs = length.num_seconds().abs();
    match secs {
        0..60 => format!("{secs}s"),
        60..3_600 => format!("{}m{:02}s", secs / 60, secs % 60),
        3_600..86_400 => format!("{}h{:02}m", secs / 3_600, secs / 60 % 60),
        _ => format!("{}d{:02}h", secs / 86_400, secs / 3_600 % 24),
    }
}

/// Like `distance`, but with milliseconds below a minute: `0.412s`.
pub fn short_distance(length: TimeDelta) -> String {
    match length.num_milliseconds() {
        msecs @ 0..60_000 => format!("{}.{:03}s", msecs / 1000, msecs % 1000),
        _ => distance(length),
    }
}

/// Formats a time relative to now: `in 5m00s` or `5m00s ago`.
pub fn relative(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let length = at - now;
    if length > TimeDelta::zero() { format!("in {}", distance(length)) } else { format!("{} ago", distance(length)) }
}

/// Formats `12`, or `10000+` if counting stopped.
pub fn count(counted: Counted) -> String {
    if counted.or_more { format!("{}+", counted.count) } else { counted.count.to_string() }
}

/// Returns the counters of `status`, each with its name.
pub fn counters(counts: &TaskCounts, slots: (i64, i64)) -> Vec<String> {
    let mut parts = vec![
        format!("running {}", count(counts.processing)),
        format!("slots {}/{}", slots.0, slots.1),
        format!("waiting runs {}", count(counts.waiting_runs)),
        format!("due {}", count(counts.due)),
        format!("scheduled {}", count(counts.scheduled)),
        format!("failed {}", count(counts.failed)),
        format!("timeout {}", count(counts.timeout)),
        format!("cancelled {}", count(counts.cancelled)),
        format!("success {}", count(counts.success)),
    ];
    if counts.waiting_for_key.has_any() {
        parts.push(format!("waiting for a limit key {}", count(counts.waiting_for_key)));
    }
    if counts.expired.count > 0 {
        parts.push(format!("expired {}", count(counts.expired)));
    }
    if counts.quarantined.has_any() {
        parts.push(format!("quarantined {}", count(counts.quarantined)));
    }
    if counts.unreported_failures.count > 0 {
        parts.push(format!("unreported failures {}", count(counts.unreported_failures)));
    }
    if let Some(secs) = counts.oldest_due_secs {
        parts.push(format!("oldest due {}", distance(TimeDelta::seconds(secs))));
    }
    parts
}

/// Formats `1 run`, `2 runs`.
pub fn plural(number: impl TryInto<i64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(i64::MAX);
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// Joins the parts in as many lines as the terminal needs; in one line without a width.
pub fn fitted<Part: AsRef<str>>(parts: &[Part], between: &str, width: Option<u16>) -> String {
    let width = width.map_or(usize::MAX, usize::from);
    let mut text = String::new();
    let mut used = 0;
    for part in parts.iter().map(AsRef::as_ref) {
        let length = part.chars().count();
        if used > 0 && used + between.len() + length > width {
            text.push('\n');
            used = 0;
        } else if used > 0 {
            text.push_str(between);
            used += between.len();
        }
        text.push_str(part);
        used += length;
    }
    text
}

/// Like `fitted`, for the words of a sentence.
pub fn fitted_words(sentence: &str, width: Option<u16>) -> String {
    if width.is_none() {
        return sentence.to_owned();
    }
    fitted(&sentence.split(' ').collect::<Vec<_>>(), " ", width)
}

/// Formats a name and a sentence; further lines are aligned with the beginning of the sentence.
pub fn hanging(name: &str, sentence: &str, width: Option<u16>) -> String {
    let indent = name.chars().count();
    let room = width.map(|width| width.saturating_sub(u16::try_from(indent).unwrap_or(u16::MAX)));
    format!("{name}{}", fitted_words(sentence, room).replace('\n', &format!("\n{}", " ".repeat(indent))))
}

/// The indentation of continued lines.
const FOLD: u16 = 4;

/// Breaks a long line between words and after the commas of JSON; continued lines are indented.
pub fn folded(line: &str, width: Option<u16>) -> String {
    let Some(width) = width else { return line.to_owned() };
    let parts: Vec<&str> = line.split_inclusive([' ', ',']).collect();
    let text = fitted(&parts, "", Some(width.saturating_sub(FOLD)));
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(&format!("\n{}", " ".repeat(FOLD.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_have_two_units_at_most() {
        for (secs, text) in [(0, "0s"), (59, "59s"), (61, "1m01s"), (3_661, "1h01m"), (90_000, "1d01h"), (-61, "1m01s")]
        {
            assert_eq!(distance(TimeDelta::seconds(secs)), text);
        }
    }

    #[test]
    fn a_counter_is_shown_where_rows_may_be_left_uncounted() {
        let shown = |or_more| {
            let waiting_for_key = Counted { count: 0, or_more };
            counters(&TaskCounts { waiting_for_key, ..TaskCounts::default() }, (0, 8)).join("   ")
        };
        assert!(shown(true).contains("waiting for a limit key 0+"));
        assert!(!shown(false).contains("limit key"));
    }

    #[test]
    fn lines_are_broken_between_parts_where_a_width_is_known() {
        assert_eq!(fitted_words("one two three", None), "one two three");
        assert_eq!(fitted_words("one two three", Some(7)), "one two\nthree");
        assert_eq!(fitted(&["running 1", "due 2", "x"], "   ", Some(9)), "running 1\ndue 2   x");
    }

    #[test]
    fn what_is_said_of_a_name_stays_beside_it() {
        assert_eq!(hanging("- ", " one  two three", None), "-  one  two three");
        assert_eq!(hanging("- ", "one two three", Some(9)), "- one two\n  three");
        assert_eq!(hanging("a long name ", "one two", Some(5)), "a long name one\n            two");
    }

    #[test]
    fn a_long_line_goes_on_below_and_loses_nothing() {
        assert_eq!(folded("one   two three", None), "one   two three");
        assert_eq!(folded("one two three", Some(13)), "one two\n    three");
        let event = "paused   {\"name\":\"a,b\",\"to\":3}";
        assert_eq!(folded(event, None), event);
        assert_eq!(folded(event, Some(16)), "paused\n    {\"name\":\"a,\n    b\",\"to\":3}");
        assert_eq!(folded("a   longerthantheroom", Some(8)), "a\n    longerthantheroom");
    }

    #[test]
    fn nouns_follow_their_number() {
        assert_eq!((plural(1, "run"), plural(0_usize, "run")), ("1 run".to_owned(), "0 runs".to_owned()));
    }
}
