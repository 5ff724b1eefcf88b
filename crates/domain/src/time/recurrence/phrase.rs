//! Schedules as people type them: `15m`, `every 2 hours`, `mon-fri 9:00`, `daily 3:00`. Each becomes a cron expression, and only
//! that is stored.

use std::borrow::Cow;
use std::time::Duration;

use crate::time::when::parse_duration;

/// The days of the week, as cron names them.
const DAYS: [&str; 7] = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"];
const MINUTE_SECS: u64 = 60;
const HOUR_SECS: u64 = 3_600;
const DAY_SECS: u64 = 86_400;

/// Returns the cron expression for a phrase. A text that is none, such as a cron expression, is returned unchanged.
///
/// # Errors
/// What is wrong with a phrase, as a sentence without a full stop.
pub(super) fn cron_of(text: &str) -> Result<Cow<'_, str>, String> {
    let lower = text.to_ascii_lowercase().replace(", ", ",");
    let mut words: Vec<&str> = lower.split_whitespace().collect();
    // Cron has five fields or six, and the first one never has letters.
    let is_cron = text.trim_start().starts_with('@')
        || (words.len() >= 5 && !words.first().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_alphabetic())));
    if is_cron || words.is_empty() || lower.len() > super::MAX_RECURRENCE_LENGTH {
        return Ok(Cow::Borrowed(text));
    }
    let has_every = words.first() == Some(&"every");
    if has_every {
        words.remove(0);
    }
    words.retain(|word| *word != "at");
    match words.as_slice() {
        [] => Err(format!("\"{text}\" has no interval; {EXAMPLES}")),
        [nickname @ ("hourly" | "daily" | "weekly" | "monthly" | "yearly")] if !has_every => {
            Ok(Cow::Owned(format!("@{nickname}")))
        }
        [unit @ ("minute" | "hour" | "day")] if has_every => interval(text, &format!("1 {unit}")).map(Cow::Owned),
        [day, time @ ..] if days(day).is_some() => at_times(text, &days(day).unwrap_or_default(), time).map(Cow::Owned),
        [times, day, ..] if days(day).is_some() && times.split(',').all(|time| time_of_day(time).is_some()) => {
            Err(format!("\"{text}\" has the time first; write the day first: \"{day} {times}\""))
        }
        [first, ..] if first.starts_with(|c: char| c.is_ascii_digit()) && first.contains(':') => {
            Err(format!("\"{text}\" has no day; write \"daily {first}\" or \"mon-fri {first}\""))
        }
        [first, ..] if has_every || first.starts_with(|c: char| c.is_ascii_digit()) => {
            interval(text, &words.join(" ")).map(Cow::Owned)
        }
        _ => Ok(Cow::Borrowed(text)),
    }
}

const EXAMPLES: &str = "write \"15m\", \"mon-fri 9:00\", \"daily 3:00\" or a cron expression like \"0 3 * * *\"";

/// Returns the expression for an interval. Cron counts from the full minute, hour or day, so the interval must divide it.
fn interval(text: &str, words: &str) -> Result<String, String> {
    if words.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "\"{text}\" has no unit; write \"{words}m\" for minutes, or a cron expression like \"0 3 * * *\""
        ));
    }
    let length = parse_duration(words).map_err(|_| format!("\"{text}\" is not a schedule; {EXAMPLES}"))?;
    let cron = if length.subsec_nanos() == 0 { steps(length) } else { None };
    cron.ok_or_else(|| {
        format!(
            "\"{text}\" cannot be written as one cron expression; use an interval that divides a minute, an hour or a day, such \
             as 15s, 20m, 2h or 1d, or write \"monday 4:30\" for a week"
        )
    })
}

/// Returns the expression with the fewest fields whose times are this far apart.
fn steps(length: Duration) -> Option<String> {
    let step = |count: u64| if count == 1 { "*".to_owned() } else { format!("*/{count}") };
    let secs = length.as_secs();
    let divides =
        |unit: u64, whole: u64| (1..whole).contains(&secs) && secs.is_multiple_of(unit) && whole.is_multiple_of(secs);
    match secs {
        _ if divides(1, MINUTE_SECS) => Some(format!("{} * * * * *", step(secs))),
        _ if divides(MINUTE_SECS, HOUR_SECS) => Some(format!("{} * * * *", step(secs / MINUTE_SECS))),
        _ if divides(HOUR_SECS, DAY_SECS) => Some(format!("0 {} * * *", step(secs / HOUR_SECS))),
        DAY_SECS => Some("0 0 * * *".to_owned()),
        _ => None,
    }
}

/// Returns the field of the days of the week; `None` if the word names no days.
fn days(word: &str) -> Option<String> {
    match word {
        "daily" | "day" | "everyday" => return Some("*".to_owned()),
        "weekday" | "weekdays" => return Some("MON-FRI".to_owned()),
        "weekend" | "weekends" => return Some("SAT,SUN".to_owned()),
        _ => {}
    }
    word.split(',').map(days_of_part).collect::<Option<Vec<_>>>().map(|parts| parts.join(","))
}

/// Returns the days of `mon` or `mon-fri`.
fn days_of_part(part: &str) -> Option<String> {
    let Some((first, last)) = part.split_once('-') else { return Some(DAYS[day(part)?].to_owned()) };
    let (first, last) = (day(first)?, day(last)?);
    // For cron a range ends at Saturday at the latest, and never before it begins.
    if first < last && DAYS[last] != "SUN" {
        return Some(format!("{}-{}", DAYS[first], DAYS[last]));
    }
    let count = (last + DAYS.len() - first) % DAYS.len() + 1;
    Some((first..first + count).map(|at| DAYS[at % DAYS.len()]).collect::<Vec<_>>().join(","))
}

/// Returns the index of a day: `mon`, `tues`, `wednesday`, `sundays`.
fn day(word: &str) -> Option<usize> {
    const NAMES: [&str; 7] = ["mondays", "tuesdays", "wednesdays", "thursdays", "fridays", "saturdays", "sundays"];
    NAMES.iter().position(|name| word.len() >= 3 && name.starts_with(word))
}

/// Returns the expression for times of day on these days: `9:00`, `9am`, `9:00,17:00`, `4:30 pm`.
fn at_times(text: &str, days: &str, words: &[&str]) -> Result<String, String> {
    let written = words.concat();
    if written.is_empty() {
        return Err(format!("\"{text}\" has no time of day; write \"{} 9:00\"", text.trim()));
    }
    let bad = || format!("\"{text}\" has no time of day that can be read; write \"mon-fri 9:00\" or \"daily 4:30pm\"");
    let mut times = written.split(',').map(time_of_day).collect::<Option<Vec<_>>>().ok_or_else(bad)?;
    times.sort_unstable();
    times.dedup();
    let minute = times.first().ok_or_else(bad)?.1;
    if times.iter().any(|(_, other)| *other != minute) {
        return Err(format!("\"{text}\" has times with different minutes; write a schedule for each"));
    }
    let hours: Vec<String> = times.iter().map(|(hour, _)| hour.to_string()).collect();
    Ok(format!("{minute} {} * * {days}", hours.join(",")))
}

/// Parses a time of day into hour and minute.
fn time_of_day(word: &str) -> Option<(u32, u32)> {
    let (clock, afternoon) = match (word.strip_suffix("am"), word.strip_suffix("pm")) {
        (Some(clock), _) => (clock, Some(false)),
        (_, Some(clock)) => (clock, Some(true)),
        _ => (word, None),
    };
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u32>().ok())?;
    let (hour, minute) = match clock.split_once(':') {
        Some((hour, minute)) if minute.len() == 2 => (number(hour)?, number(minute)?),
        // Without minutes, only with am or pm: `daily 9` may mean every nine days.
        None if afternoon.is_some() => (number(clock)?, 0),
        _ => return None,
    };
    let hour = match afternoon {
        Some(_) if !(1..=12).contains(&hour) => return None,
        Some(is_afternoon) => hour % 12 + if is_afternoon { 12 } else { 0 },
        None => hour,
    };
    (hour < 24 && minute < 60).then_some((hour, minute))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::Recurrence;
    use super::*;

    #[test]
    fn phrases_become_cron_expressions() {
        for (phrase, cron) in [
            ("15m", "*/15 * * * *"),
            ("every 15m", "*/15 * * * *"),
            ("Every 15 minutes", "*/15 * * * *"),
            ("every minute", "* * * * *"),
            ("60s", "* * * * *"),
            ("10s", "*/10 * * * * *"),
            ("1s", "* * * * * *"),
            ("1h", "0 * * * *"),
            ("120m", "0 */2 * * *"),
            ("every 6 hours", "0 */6 * * *"),
            ("1d", "0 0 * * *"),
            ("24h", "0 0 * * *"),
            ("daily 3:00", "0 3 * * *"),
            ("every day at 9:05 pm", "5 21 * * *"),
            ("mon-fri 9:00", "0 9 * * MON-FRI"),
            ("weekdays 9:00,17:00", "0 9,17 * * MON-FRI"),
            ("sunday 4:30", "30 4 * * SUN"),
            ("Mon, Wed at 12am", "0 0 * * MON,WED"),
            ("fri-mon 08:00", "0 8 * * FRI,SAT,SUN,MON"),
            ("sat-sun 8:00", "0 8 * * SAT,SUN"),
            ("daily", "@daily"),
            ("hourly", "@hourly"),
        ] {
            assert_eq!(cron_of(phrase).as_deref(), Ok(cron), "{phrase}");
            assert_eq!(Recurrence::from_phrase(phrase, "UTC", "latest").unwrap().every(), cron);
        }
    }

    #[test]
    fn an_expression_is_not_a_phrase() {
        for cron in ["0 3 * * *", "*/10 * * * * *", "30 6 * * MON-FRI", "@daily", " 0 0 L * * ", "nonsense", "* *", ""]
        {
            assert_eq!(cron_of(cron).as_deref(), Ok(cron));
        }
    }

    #[test]
    fn phrases_that_are_no_schedule_are_refused_with_one_that_is() {
        for (phrase, why) in [
            ("15", "\"15\" has no unit; write \"15m\""),
            ("every 7m", "cannot be written as one cron expression; use an interval"),
            ("90m", "\"90m\" cannot be written as one cron expression"),
            ("1week", "\"monday 4:30\" for a week"),
            ("500ms", "cannot be written"),
            ("0s", "cannot be written"),
            ("every", "has no interval"),
            ("every 5 bananas", "is not a schedule"),
            ("9:00 mon-fri", "write the day first: \"mon-fri 9:00\""),
            ("9am,5pm daily", "write the day first: \"daily 9am,5pm\""),
            ("9:00", "has no day; write \"daily 9:00\""),
            ("monday", "has no time of day; write \"monday 9:00\""),
            ("monday 25:00", "no time of day that can be read"),
            ("daily 9", "no time of day that can be read"),
            ("daily 13pm", "no time of day that can be read"),
            ("daily 9:00,17:30", "different minutes"),
        ] {
            let error = cron_of(phrase).unwrap_err();
            assert!(error.contains(why), "{phrase}: {error}");
        }
    }
}
