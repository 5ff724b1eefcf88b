//! When a schedule happens: the planned times of a cron expression in a time zone, and which of them come next.
//!
//! Cron speaks of the wall clock, which jumps twice a year. Where an expression names hours, a time that the clock leaves
//! out happens once, at the first moment after the jump, and a time that comes twice happens at the first of the two. Steps
//! of several hours name hours, too. Where it leaves them all open (`*`), its times are steps of elapsed time, which no jump
//! changes.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, LocalResult, NaiveDateTime, TimeDelta, TimeZone as _, Timelike as _, Utc};
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};

use super::time_zone::Zone;

/// The longest expression, and the longest name of a zone, in characters.
pub const MAX_RECURRENCE_LENGTH: usize = 190;
/// Planned times that are counted one by one when they are skipped.
pub const MAX_COUNTED: usize = 1_000;

/// What becomes of planned times that passed while nothing could happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CatchUp {
    /// They are skipped.
    None,
    /// The last of them happens, the others are skipped.
    #[default]
    Latest,
    /// Each of them happens, one after the other.
    All,
}

impl CatchUp {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::None, Self::Latest, Self::All];

    /// The spelling in the column CatchUp.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Latest => "latest",
            Self::All => "all",
        }
    }
}

impl fmt::Display for CatchUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for CatchUp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|choice| choice.as_str() == text)
            .ok_or_else(|| format!("\"{text}\" is no way to catch up: none, latest or all"))
    }
}

/// When a schedule happens: a cron expression, the zone of its wall clock, and how it catches up.
#[derive(Clone, Debug)]
pub struct Recurrence {
    every: String,
    cron: Cron,
    zone: Zone,
    catch_up: CatchUp,
    names_hours: bool,
}

impl PartialEq for Recurrence {
    fn eq(&self, other: &Self) -> bool {
        (&self.every, &self.zone, self.catch_up) == (&other.every, &other.zone, other.catch_up)
    }
}

impl Eq for Recurrence {}

/// The planned time that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When.
    pub planned_on: DateTime<Utc>,
    /// How many planned times were left out before it, up to [`MAX_COUNTED`].
    pub skipped: usize,
}

impl Step {
    /// Whether more may have been left out than are counted.
    #[must_use]
    pub const fn skipped_or_more(&self) -> bool {
        self.skipped >= MAX_COUNTED
    }
}

impl Recurrence {
    /// Reads an expression (five fields, or six with the seconds first, or `@daily` and the like), the name of a zone
    /// (`Europe/Berlin`), and how to catch up.
    ///
    /// # Errors
    /// What is wrong, as a sentence without a full stop.
    pub fn parse(every: &str, zone: &str, catch_up: &str) -> Result<Self, String> {
        let every = every.split_whitespace().collect::<Vec<_>>().join(" ");
        // The library takes any text with an @ in it for a nickname, and counts fields by bytes.
        if every.chars().count() > MAX_RECURRENCE_LENGTH || !every.is_ascii() {
            return Err(format!("a cron expression has at most {MAX_RECURRENCE_LENGTH} characters, all ASCII"));
        }
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let cron = parser.parse(&every).map_err(|error| {
            let why = why_refused(&every).unwrap_or_else(|| error.to_string());
            let why = why.trim_end_matches('.');
            format!("\"{every}\" is no cron expression ({why}); write \"0 3 * * *\" for 03:00 every day")
        })?;
        let zone = Zone::named(zone)
            .ok_or_else(|| format!("\"{zone}\" is no time zone; write a name like Europe/Berlin or UTC"))?;
        let names_hours = names_hours(&every);
        Ok(Self { every, cron, zone, catch_up: catch_up.parse()?, names_hours })
    }

    /// The expression, its fields apart by one blank.
    #[must_use]
    pub fn every(&self) -> &str {
        &self.every
    }

    /// The name of the zone.
    #[must_use]
    pub fn zone(&self) -> &str {
        self.zone.name()
    }

    /// How it catches up.
    #[must_use]
    pub const fn catch_up(&self) -> CatchUp {
        self.catch_up
    }

    /// The first planned time after `after`; `None` when there is none within reach, as for a 30th of February.
    #[must_use]
    pub fn next_after(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        if !self.names_hours {
            let next = self.cron.find_next_occurrence(&after.with_timezone(&self.zone), false).ok()?;
            return Some(next.with_timezone(&Utc));
        }
        // A pretended UTC keeps the library from resolving the zone: what the jumps of the clock mean is decided here.
        let mut wall = after.with_timezone(&self.zone).naive_local().and_utc();
        loop {
            wall = self.cron.find_next_occurrence(&wall, false).ok()?;
            let instant = self.resolve(wall.naive_utc())?;
            // The second of two equal times on the wall lies ahead, and has happened.
            if instant > after {
                return Some(instant);
            }
        }
    }

    fn resolve(&self, wall: NaiveDateTime) -> Option<DateTime<Utc>> {
        match self.zone.from_local_datetime(&wall) {
            LocalResult::Single(instant) | LocalResult::Ambiguous(instant, _) => Some(instant.with_timezone(&Utc)),
            LocalResult::None => self.first_moment_after_gap(wall),
        }
    }

    /// Clocks are moved at full minutes, and never by more than a day.
    fn first_moment_after_gap(&self, wall: NaiveDateTime) -> Option<DateTime<Utc>> {
        const MINUTES_OF_TWO_DAYS: i64 = 2_880;
        let minute = wall.with_second(0)?.with_nanosecond(0)?;
        (1..=MINUTES_OF_TWO_DAYS)
            .find_map(|minutes| {
                self.zone.from_local_datetime(&minute.checked_add_signed(TimeDelta::minutes(minutes))?).earliest()
            })
            .map(|instant| instant.with_timezone(&Utc))
    }

    /// The first planned time of a schedule that begins at `from`, which may be one itself.
    #[must_use]
    pub fn first_from(&self, from: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.next_after(from.checked_sub_signed(TimeDelta::microseconds(1))?)
    }

    /// What comes after the planned time `last`, seen at `now`, by the way in which it catches up. Without catching up that is
    /// the last time that has passed if it is late by no more than `grace_secs`, and the first of the future otherwise.
    #[must_use]
    pub fn step_after(&self, last: DateTime<Utc>, now: DateTime<Utc>, grace_secs: i64) -> Option<Step> {
        let next = self.next_after(last)?;
        let planned_on = match self.catch_up {
            CatchUp::All => next,
            CatchUp::Latest => self.last_until(now, last).unwrap_or(next),
            CatchUp::None if next > now => next,
            CatchUp::None => {
                let late = self.last_until(now, last.max(before_grace(now, grace_secs)?));
                late.or_else(|| self.next_after(now))?
            }
        };
        Some(Step { planned_on, skipped: self.count_between(last, planned_on) })
    }

    /// Where a planned time that has passed and was never tried is moved to, if it does not stay: it stays as long as it is the
    /// last that has passed and, without catching up, is late by no more than `grace_secs`.
    #[must_use]
    pub fn move_overdue(&self, planned_on: DateTime<Utc>, now: DateTime<Utc>, grace_secs: i64) -> Option<Step> {
        let has_later = || self.next_after(planned_on).map(|next| next <= now);
        let is_missed = match self.catch_up {
            CatchUp::All => false,
            CatchUp::Latest => has_later()?,
            CatchUp::None => planned_on <= before_grace(now, grace_secs)? || has_later()?,
        };
        let step = if is_missed { self.step_after(planned_on, now, grace_secs)? } else { return None };
        Some(Step { skipped: (step.skipped + 1).min(MAX_COUNTED), ..step })
    }

    /// The last planned time in `after..=until`. Looked for in spans that grow backwards, so that years of seconds cost as
    /// little as a day of hours.
    fn last_until(&self, until: DateTime<Utc>, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut span = TimeDelta::minutes(1);
        loop {
            let start = until.checked_sub_signed(span).map_or(after, |start| start.max(after));
            let mut last = None;
            let mut place = start;
            while let Some(next) = self.next_after(place).filter(|next| *next <= until) {
                last = Some(next);
                place = next;
            }
            if last.is_some() || start == after {
                return last;
            }
            span = span.checked_mul(2)?;
        }
    }

    fn count_between(&self, after: DateTime<Utc>, before: DateTime<Utc>) -> usize {
        let mut place = after;
        let mut count = 0;
        while let Some(next) = self.next_after(place).filter(|next| *next < before && count < MAX_COUNTED) {
            count += 1;
            place = next;
        }
        count
    }
}

const NICKNAMES: [&str; 6] = ["@hourly", "@daily", "@weekly", "@monthly", "@yearly", "@annually"];
/// What stands in the fields, and between which numbers.
const FIELDS: [(&str, u32, u32); 6] = [
    ("second", 0, 59),
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day", 1, 31),
    ("month", 1, 12),
    ("day of the week", 0, 7),
];

/// What is wrong with an expression that the library has refused, where that can be told better than by the library.
fn why_refused(every: &str) -> Option<String> {
    if every.starts_with('@') {
        return Some(format!("after an @ there are {}", NICKNAMES.join(", ")));
    }
    let fields: Vec<&str> = every.split(' ').collect();
    let places = match fields.len() {
        5 => &FIELDS[1..],
        6 => &FIELDS[..],
        _ => return Some("it has five fields, or six with the seconds first".to_owned()),
    };
    fields.into_iter().zip(places).find_map(|(field, (name, low, high))| {
        let number = number_beyond(field, *low, *high)?;
        Some(format!("the {name} is {number}; it lies between {low} and {high}"))
    })
}

/// The first number of a field that it cannot have, steps (`/5`) and counts (`#2`) aside.
fn number_beyond(field: &str, low: u32, high: u32) -> Option<&str> {
    let values = field.split(',').filter_map(|part| part.split(['/', '#']).next());
    let mut numbers = values.flat_map(|value| value.split(|c: char| !c.is_ascii_digit())).filter(|it| !it.is_empty());
    numbers.find(|number| !number.parse::<u32>().is_ok_and(|number| (low..=high).contains(&number)))
}

/// The last moment that is too late.
fn before_grace(now: DateTime<Utc>, grace_secs: i64) -> Option<DateTime<Utc>> {
    now.checked_sub_signed(TimeDelta::try_seconds(grace_secs)?)?.checked_sub_signed(TimeDelta::microseconds(1))
}

/// Whether the field of the hours is anything but all of them: cron takes steps of several hours for a list of them.
fn names_hours(every: &str) -> bool {
    if every.starts_with('@') {
        return !every.eq_ignore_ascii_case("@hourly");
    }
    let fields: Vec<&str> = every.split(' ').collect();
    let hours = if fields.len() == 5 { fields.get(1) } else { fields.get(2) };
    hours.is_some_and(|hours| !matches!(*hours, "*" | "?" | "*/1"))
}

#[cfg(test)]
mod tests;
