//! When a schedule is due: the planned times of a cron expression in a time zone, and which of them come next.
//!
//! Cron uses the wall clock, which is changed twice a year. If an expression names hours, a time that the clock skips becomes one
//! planned time, at the first moment after the gap. A time that occurs twice counts only the first time. Steps of several hours
//! count as named hours. If the hours are open (`*`), its times are steps of elapsed time, which clock changes do not affect.

use chrono::{DateTime, LocalResult, NaiveDateTime, TimeDelta, TimeZone as _, Timelike as _, Utc};
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};

use super::time_zone::Zone;
use crate::text::words::words;

mod phrase;

/// The longest expression, and the longest name of a zone, in characters.
pub const MAX_RECURRENCE_LENGTH: usize = 190;
/// The highest number of skipped planned times that is counted.
pub const MAX_COUNTED: usize = 1_000;

/// What to do with planned times that passed while nothing ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CatchUp {
    /// Skip them.
    None,
    /// Run the last of them, skip the others.
    #[default]
    Latest,
    /// Run each of them, one after the other.
    All,
}

words! {
    /// Returns the spelling in the column CatchUp.
    CatchUp { None = "none", Latest = "latest", All = "all" }
    else |text| format!("\"{text}\" is not a catch-up mode: write none, latest or all")
}

/// What to do if a task of a schedule has not finished when the next planned time comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Overlap {
    /// The next task waits until it has finished.
    #[default]
    Wait,
    /// Cancel it. The next task starts when its run has ended.
    Replace,
}

words! {
    /// Returns the spelling in the column Overlap.
    Overlap { Wait = "wait", Replace = "replace" }
    else |text| format!("\"{text}\" is not a choice for overlap: write wait or replace")
}

/// A schedule: a cron expression, its time zone, how it catches up, and whether its tasks replace each other.
#[derive(Clone, Debug)]
pub struct Recurrence {
    every: String,
    cron: Cron,
    zone: Zone,
    catch_up: CatchUp,
    overlap: Overlap,
    names_hours: bool,
}

impl PartialEq for Recurrence {
    fn eq(&self, other: &Self) -> bool {
        (&self.every, &self.zone, self.catch_up, self.overlap)
            == (&other.every, &other.zone, other.catch_up, other.overlap)
    }
}

impl Eq for Recurrence {}

/// The next planned time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The planned time.
    pub planned_on: DateTime<Utc>,
    /// How many planned times before it were skipped, up to [`MAX_COUNTED`].
    pub skipped: usize,
}

impl Step {
    /// Returns true if more may have been skipped than were counted.
    #[must_use]
    pub const fn skipped_or_more(&self) -> bool {
        self.skipped >= MAX_COUNTED
    }
}

impl Recurrence {
    /// Parses a schedule as a user types it: what [`Recurrence::parse`] accepts, an interval (`15m`), or days and a time of day
    /// (`mon-fri 9:00`). The tables contain only the expression.
    ///
    /// # Errors
    /// What is wrong, as a sentence without a full stop.
    pub fn from_phrase(every: &str, zone: &str, catch_up: &str) -> Result<Self, String> {
        Self::parse(&phrase::cron_of(every)?, zone, catch_up)
    }

    /// Parses an expression (five fields, or six with the seconds first, or `@daily` and similar), the name of a zone
    /// (`Europe/Berlin`), and how to catch up.
    ///
    /// # Errors
    /// What is wrong, as a sentence without a full stop.
    pub fn parse(every: &str, zone: &str, catch_up: &str) -> Result<Self, String> {
        let every = every.split_whitespace().collect::<Vec<_>>().join(" ");
        // The library treats any text with an @ in it as a nickname, and counts fields by bytes.
        if every.chars().count() > MAX_RECURRENCE_LENGTH || !every.is_ascii() {
            return Err(format!("a cron expression can have at most {MAX_RECURRENCE_LENGTH} characters, all ASCII"));
        }
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let cron = parser.parse(&every).map_err(|error| {
            let why = why_refused(&every).unwrap_or_else(|| error.to_string());
            let why = why.trim_end_matches('.');
            format!(
                "\"{every}\" is not a cron expression ({why}); write \"0 3 * * *\" or \"daily 3:00\" for 03:00 every day"
            )
        })?;
        let zone = Zone::named(zone)
            .ok_or_else(|| format!("\"{zone}\" is not a time zone; write a name like Europe/Berlin or UTC"))?;
        let names_hours = names_hours(&every);
        Ok(Self { every, cron, zone, catch_up: catch_up.parse()?, overlap: Overlap::default(), names_hours })
    }

    /// Sets what happens if a task has not finished when the next planned time comes.
    ///
    /// # Errors
    /// What is wrong, as a sentence without a full stop: with [`CatchUp::All`], no task may replace another.
    pub fn with_overlap(self, overlap: &str) -> Result<Self, String> {
        let overlap = overlap.parse()?;
        if overlap == Overlap::Replace && self.catch_up == CatchUp::All {
            return Err(
                "overlap replace and catch-up all exclude each other: a newer time replaces an older one".to_owned()
            );
        }
        Ok(Self { overlap, ..self })
    }

    /// Returns the expression, with its fields separated by one space.
    #[must_use]
    pub fn every(&self) -> &str {
        &self.every
    }

    /// Returns the name of the zone.
    #[must_use]
    pub fn zone(&self) -> &str {
        self.zone.name()
    }

    /// Returns how it catches up.
    #[must_use]
    pub const fn catch_up(&self) -> CatchUp {
        self.catch_up
    }

    /// Returns what happens if a task has not finished when the next planned time comes.
    #[must_use]
    pub const fn overlap(&self) -> Overlap {
        self.overlap
    }

    /// Returns the planned time at which another task replaces this one, if it has not finished by then; `None` if none does.
    #[must_use]
    pub fn replaced_on(&self, planned_on: DateTime<Utc>) -> Option<DateTime<Utc>> {
        if self.overlap == Overlap::Replace { self.next_after(planned_on) } else { None }
    }

    /// Returns the first planned time after `after`; `None` if none can be found, as for 30 February.
    #[must_use]
    pub fn next_after(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        if !self.names_hours {
            let next = self.cron.find_next_occurrence(&after.with_timezone(&self.zone), false).ok()?;
            return Some(next.with_timezone(&Utc));
        }
        // Pretends that the wall time is UTC, so that the library does not resolve the zone: this code handles clock changes.
        let mut wall = after.with_timezone(&self.zone).naive_local().and_utc();
        loop {
            wall = self.cron.find_next_occurrence(&wall, false).ok()?;
            let instant = self.resolve(wall.naive_utc())?;
            // This wall time occurs again later, but its first occurrence has already counted.
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

    /// Clocks change at full minutes, by at most a day.
    fn first_moment_after_gap(&self, wall: NaiveDateTime) -> Option<DateTime<Utc>> {
        const MINUTES_OF_TWO_DAYS: i64 = 2_880;
        let minute = wall.with_second(0)?.with_nanosecond(0)?;
        (1..=MINUTES_OF_TWO_DAYS)
            .find_map(|minutes| {
                self.zone.from_local_datetime(&minute.checked_add_signed(TimeDelta::minutes(minutes))?).earliest()
            })
            .map(|instant| instant.with_timezone(&Utc))
    }

    /// Returns the first planned time of a schedule that begins at `from`, including `from`.
    #[must_use]
    pub fn first_from(&self, from: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.next_after(from.checked_sub_signed(TimeDelta::microseconds(1))?)
    }

    /// Returns the planned time after `last`, seen at `now`, according to its catch-up. With `CatchUp::None`, that is the last
    /// passed time if it is late by at most `grace_secs`, otherwise the first future time.
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

    /// Returns the time to which an overdue planned time that was never attempted moves; `None` if it stays. It stays if it is
    /// the last passed time and, with `CatchUp::None`, is late by at most `grace_secs`. With `CatchUp::All` it always stays.
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

    /// Returns the last planned time in `after..=until`. The search doubles its span backwards, so that years of seconds cost as
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
/// The name and the range of each field.
const FIELDS: [(&str, u32, u32); 6] = [
    ("second", 0, 59),
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day", 1, 31),
    ("month", 1, 12),
    ("day of the week", 0, 7),
];

/// Returns a better message than the library's for an expression that the library rejected, if possible.
fn why_refused(every: &str) -> Option<String> {
    if every.starts_with('@') {
        return Some(format!("after @, write one of {}", NICKNAMES.join(", ")));
    }
    let fields: Vec<&str> = every.split(' ').collect();
    let places = match fields.len() {
        5 => &FIELDS[1..],
        6 => &FIELDS[..],
        _ => return Some("it needs five fields, or six with the seconds first".to_owned()),
    };
    fields.into_iter().zip(places).find_map(|(field, (name, low, high))| {
        let number = number_beyond(field, *low, *high)?;
        Some(format!("the {name} is {number}; it must be {low} to {high}"))
    })
}

/// Returns the first number of a field that is out of range, without steps (`/5`) and counts (`#2`).
fn number_beyond(field: &str, low: u32, high: u32) -> Option<&str> {
    let values = field.split(',').filter_map(|part| part.split(['/', '#']).next());
    let mut numbers = values.flat_map(|value| value.split(|c: char| !c.is_ascii_digit())).filter(|it| !it.is_empty());
    numbers.find(|number| !number.parse::<u32>().is_ok_and(|number| (low..=high).contains(&number)))
}

/// Returns the last moment that is too late.
fn before_grace(now: DateTime<Utc>, grace_secs: i64) -> Option<DateTime<Utc>> {
    now.checked_sub_signed(TimeDelta::try_seconds(grace_secs)?)?.checked_sub_signed(TimeDelta::microseconds(1))
}

/// Returns true unless the field of the hours is `*`: cron treats steps of several hours as a list of hours.
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
