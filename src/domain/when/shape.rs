//! What is asked of a time before the library reads it: the library takes anything that begins like a word for the word,
//! lets hours run on into the next day, and stops where it has understood enough.

use std::ops::RangeInclusive;

use self::Token::{Mark, Number, Word};

const ANCHORS: [&str; 4] = ["now", "today", "tomorrow", "yesterday"];
const DIRECTIONS: [&str; 3] = ["next", "last", "this"];
const WEEKDAYS: [&str; 17] = [
    "mon",
    "monday",
    "tue",
    "tues",
    "tuesday",
    "wed",
    "wednesday",
    "thu",
    "thur",
    "thurs",
    "thursday",
    "fri",
    "friday",
    "sat",
    "saturday",
    "sun",
    "sunday",
];
const MONTHS: [&str; 24] = [
    "jan",
    "january",
    "feb",
    "february",
    "mar",
    "march",
    "apr",
    "april",
    "may",
    "jun",
    "june",
    "jul",
    "july",
    "aug",
    "august",
    "sep",
    "sept",
    "september",
    "oct",
    "october",
    "nov",
    "november",
    "dec",
    "december",
];
/// Units below a day: a time of day beside them would mean nothing.
const SHORT_UNITS: [&str; 13] =
    ["s", "sec", "secs", "second", "seconds", "m", "min", "mins", "minute", "minutes", "h", "hour", "hours"];
const LONG_UNITS: [&str; 10] = ["d", "day", "days", "w", "week", "weeks", "month", "months", "year", "years"];
const OTHER_WORDS: [&str; 5] = ["am", "pm", "z", "t", "ago"];

/// How far a clock can be from UTC, in minutes.
const MAX_OFFSET_MINUTES: u32 = 14 * 60;

/// A piece of a time as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Number(&'a str),
    Word(&'a str),
    Mark(char),
}

/// Whether every word of this time (in small letters) is one that there is, and whether it has one of the forms that can be
/// read in one way only.
///
/// # Errors
/// What is wrong.
pub(super) fn check(text: &str) -> Result<(), String> {
    let tokens = tokens(text);
    for token in &tokens {
        if let Word(word) = token
            && !is_known(word)
        {
            return Err(format!("nothing is known of \"{word}\""));
        }
    }
    let (date, clock) = tokens.split_at(start_of_clock(&tokens));
    check_date(date, !clock.is_empty())?;
    check_clock(clock)
}

/// Whether a clock can be as many seconds from UTC.
pub(super) const fn is_offset(secs: i32) -> bool {
    secs.unsigned_abs() <= MAX_OFFSET_MINUTES * 60
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '0'..='9' => rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()),
            'a'..='z' => rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (piece, after) = rest.split_at(end);
        tokens.push(match first {
            '0'..='9' => Number(piece),
            'a'..='z' => Word(piece),
            mark => Mark(mark),
        });
        rest = after.trim_start();
    }
    tokens
}

fn is_known(word: &str) -> bool {
    is_date_word(word) || is_unit(word) || DIRECTIONS.contains(&word) || OTHER_WORDS.contains(&word)
}

/// A word that is a date of its own.
fn is_date_word(word: &str) -> bool {
    ANCHORS.contains(&word) || WEEKDAYS.contains(&word) || is_month(word)
}

fn is_month(word: &str) -> bool {
    MONTHS.contains(&word)
}

fn is_unit(word: &str) -> bool {
    SHORT_UNITS.contains(&word) || LONG_UNITS.contains(&word)
}

/// Where the time of day begins; what stands before it is the date.
fn start_of_clock(tokens: &[Token<'_>]) -> usize {
    let first = |mark| tokens.iter().position(|token| *token == Mark(mark));
    match (first(':').or_else(|| first('.')), tokens) {
        (Some(at), _) => at.saturating_sub(1),
        (None, [.., Word("am" | "pm")]) => tokens.len().saturating_sub(2),
        (None, _) => tokens.len(),
    }
}

fn check_date(date: &[Token<'_>], has_clock: bool) -> Result<(), String> {
    let (direction, rest) = match date {
        [Word(word), rest @ ..] if DIRECTIONS.contains(word) => (true, rest),
        _ => (false, date),
    };
    let is_good = match rest {
        [] => has_clock && !direction,
        [Word(word)] if direction => is_unit(word) || (is_date_word(word) && !ANCHORS.contains(word)),
        [Word(word)] => is_date_word(word),
        [Number(day), Word(month)] | [Word(month), Number(day)] if is_month(month) => day.len() <= 2,
        _ if direction => false,
        [Number(day), Word(month), Number(year)] | [Word(month), Number(day), Mark(','), Number(year)] => {
            is_month(month) && day.len() <= 2 && year.len() == 4
        }
        [Number(year), Mark('-'), Number(month), Mark('-'), Number(day)] => is_iso_date(year, month, day),
        [Number(year), Mark('-'), Number(month), Mark('-'), Number(day), Word("t")] => {
            has_clock && is_iso_date(year, month, day)
        }
        [Number(count), Word(unit)]
        | [Mark('-'), Number(count), Word(unit)]
        | [Number(count), Word(unit), Word("ago")] => is_unit(unit) && count.len() <= 4,
        _ => false,
    };
    if !is_good {
        return Err("this is no form of a date that is known".to_owned());
    }
    let is_short = |token: &Token<'_>| matches!(token, Word(word) if SHORT_UNITS.contains(word));
    if has_clock && date.iter().any(is_short) {
        return Err("a distance of hours, minutes or seconds has no time of day".to_owned());
    }
    Ok(())
}

fn is_iso_date(year: &str, month: &str, day: &str) -> bool {
    year.len() == 4 && month.len() <= 2 && day.len() <= 2
}

fn check_clock(clock: &[Token<'_>]) -> Result<(), String> {
    let (hour, rest) = match clock {
        [] => return Ok(()),
        [Number(hour), rest @ ..] => (*hour, rest),
        _ => return Err("the hour is missing".to_owned()),
    };
    let (minute, rest) = match rest {
        [Mark(':' | '.'), Number(minute), rest @ ..] => (*minute, rest),
        rest => ("00", rest),
    };
    let (second, rest) = match rest {
        [Mark(':'), Number(second), Mark('.'), Number(_), rest @ ..] | [Mark(':'), Number(second), rest @ ..] => {
            (*second, rest)
        }
        rest => ("00", rest),
    };
    in_range("hour", hour, if matches!(rest, [Word("am" | "pm")]) { 1..=12 } else { 0..=23 })?;
    in_range("minute", minute, 0..=59)?;
    in_range("second", second, 0..=59)?;
    if minute.len() != 2 || second.len() != 2 {
        return Err("minutes and seconds have two digits".to_owned());
    }
    match rest {
        [] | [Word("am" | "pm" | "z")] => Ok(()),
        [Mark('+' | '-'), Number(hours), Mark(':'), Number(minutes)] => check_offset(hours, minutes),
        [Mark('+' | '-'), Number(both)] if both.len() == 4 => {
            let (hours, minutes) = both.split_at(2);
            check_offset(hours, minutes)
        }
        [Mark('+' | '-'), ..] => Err("a distance from UTC is written +02:00".to_owned()),
        _ => Err("something stands behind the time of day".to_owned()),
    }
}

fn check_offset(hours: &str, minutes: &str) -> Result<(), String> {
    in_range("minute of the distance from UTC", minutes, 0..=59)?;
    let all = hours.parse::<u32>().ok().zip(minutes.parse::<u32>().ok());
    let is_good =
        all.is_some_and(|(hours, minutes)| hours.saturating_mul(60).saturating_add(minutes) <= MAX_OFFSET_MINUTES);
    if is_good { Ok(()) } else { Err("no clock is more than 14:00 from UTC".to_owned()) }
}

fn in_range(what: &str, digits: &str, range: RangeInclusive<u32>) -> Result<(), String> {
    match digits.parse::<u32>() {
        Ok(number) if range.contains(&number) => Ok(()),
        _ => Err(format!("the {what} is {digits}; it lies between {} and {}", range.start(), range.end())),
    }
}
