//! How many runs started: the figures of charts. Changes nothing.
//!
//! No index has the times of starts, because every run would pay for it. The runs are read by their ids instead, in parts that are
//! remembered. A part is read again as long as it has runs that may still start.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};

use crate::context::Context;
use crate::error::EngineResult;

/// How many ids a part has. Its number is the id of a run divided by this.
const RUNS_PER_PART: i64 = 5_000;
/// How many parts are read at once: no request may take long.
const PARTS_AT_ONCE: usize = 10;
/// How long an id that is left out may still appear: its transaction may be committed later.
const SETTLED_AFTER: TimeDelta = TimeDelta::seconds(30);

/// What was read of the runs of one part.
#[derive(Clone, Debug)]
struct Part {
    /// How many runs started in a minute, by its number since 1970.
    minutes: BTreeMap<i64, i64>,
    read_on: DateTime<Utc>,
    /// True if one of its runs may start later, or appear.
    is_open: bool,
    /// True if runs of it started between its last two readings: then more are probably about to start.
    is_busy: bool,
}

/// The starts of runs that were read so far.
#[derive(Clone, Debug, Default)]
pub struct Starts {
    parts: BTreeMap<i64, Part>,
    minutes: BTreeMap<i64, i64>,
    reaches_back: bool,
}

/// What a reading has found.
#[derive(Clone, Debug)]
pub struct FoundStarts {
    parts: BTreeMap<i64, Part>,
    reaches_back: bool,
    /// True if there are more runs to read now.
    pub has_more: bool,
}

impl Starts {
    /// Reads the next parts: newer ones, then older ones until all runs of a part were created before `since` and none of them
    /// waits or has started later, then those that may have changed.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub fn read_some(&self, ctx: &mut Context, since: DateTime<Utc>, now: DateTime<Utc>) -> EngineResult<FoundStarts> {
        let newest = ctx.store.last_run_below(i64::MAX)?;
        let mut reading = Reading { ctx, last: newest.map(part_of), since, now, parts: BTreeMap::new() };
        let mut next = match self.parts.last_key_value() {
            Some((number, _)) => reading.first_after(*number)?,
            None if self.reaches_back => reading.ctx.store.first_run_from(i64::MIN)?,
            None => newest,
        };
        while let Some(run) = next.filter(|_| reading.room() > 0) {
            reading.read(part_of(run))?;
            next = reading.first_after(part_of(run))?;
        }
        let mut reaches_back = self.reaches_back;
        while !reaches_back && reading.room() > 0 {
            let first = self.parts.keys().chain(reading.parts.keys()).min();
            let below = first.map_or(i64::MAX, |number| number.saturating_mul(RUNS_PER_PART));
            reaches_back = match reading.ctx.store.last_run_below(below)? {
                Some(run) => reading.read(part_of(run))?,
                None => true,
            };
        }
        let mut open: Vec<_> = self.parts.iter().filter(|(_, part)| part.is_open).collect();
        // A busy part is read before others that were read a minute earlier, but not before those that wait for longer.
        let turn = |part: &Part| part.read_on + if part.is_busy { TimeDelta::zero() } else { TimeDelta::minutes(1) };
        open.sort_unstable_by_key(|(_, part)| turn(part));
        for (number, _) in open.into_iter().take(reading.room()) {
            reading.read(*number)?;
        }
        Ok(FoundStarts { parts: reading.parts, reaches_back, has_more: !reaches_back || next.is_some() })
    }

    /// Keeps what was read, and forgets starts before `since`. Returns whether the runs have now been read back to the beginning.
    pub fn keep(&mut self, found: FoundStarts, since: DateTime<Utc>) -> bool {
        let is_first = found.reaches_back && !self.reaches_back;
        self.reaches_back = found.reaches_back;
        for (number, mut part) in found.parts {
            part.is_busy = self.parts.get(&number).is_some_and(|earlier| earlier.minutes != part.minutes);
            self.parts.insert(number, part);
        }
        let first = minute_of(since);
        for part in self.parts.values_mut() {
            part.minutes = part.minutes.split_off(&first);
        }
        // The last part tells where the next one begins, and until then the first one where the one before it ends.
        let last = self.parts.keys().last().copied().filter(|_| self.reaches_back);
        self.parts
            .retain(|number, part| part.is_open || !part.minutes.is_empty() || last.is_none_or(|last| *number == last));
        self.minutes.clear();
        for (minute, count) in self.parts.values().flat_map(|part| &part.minutes) {
            *self.minutes.entry(*minute).or_default() += count;
        }
        is_first
    }

    /// Returns how many runs started from `from` on and before `until`, which are whole minutes. Returns `None` until the runs have
    /// been read back to the beginning.
    #[must_use]
    pub fn count(&self, from: DateTime<Utc>, until: DateTime<Utc>) -> Option<i64> {
        let minutes = self.minutes.range(minute_of(from)..minute_of(until));
        self.reaches_back.then(|| minutes.map(|(_, count)| count).sum())
    }
}

const fn part_of(run: i64) -> i64 {
    run.div_euclid(RUNS_PER_PART)
}

const fn minute_of(on: DateTime<Utc>) -> i64 {
    on.timestamp().div_euclid(60)
}

struct Reading<'a> {
    ctx: &'a mut Context,
    /// The number of the last part that exists.
    last: Option<i64>,
    since: DateTime<Utc>,
    now: DateTime<Utc>,
    parts: BTreeMap<i64, Part>,
}

impl Reading<'_> {
    /// Returns how many parts may still be read.
    fn room(&self) -> usize {
        PARTS_AT_ONCE.saturating_sub(self.parts.len())
    }

    fn first_after(&mut self, number: i64) -> EngineResult<Option<i64>> {
        let Some(from) = (number + 1).checked_mul(RUNS_PER_PART) else { return Ok(None) };
        Ok(self.ctx.store.first_run_from(from)?)
    }

    /// Reads a part. Returns true if it lies before the time from which starts are counted.
    fn read(&mut self, number: i64) -> EngineResult<bool> {
        let first = number.saturating_mul(RUNS_PER_PART);
        let runs = self.ctx.store.list_starts(first..first.saturating_add(RUNS_PER_PART))?;
        let newest = runs.iter().map(|run| run.created_on).max();
        let has_gaps = i64::try_from(runs.len()).unwrap_or(i64::MAX) < RUNS_PER_PART;
        let is_settled = self.last != Some(number) && newest.is_none_or(|on| on + SETTLED_AFTER < self.now);
        let mut minutes = BTreeMap::new();
        for started_on in runs.iter().filter_map(|run| run.started_on).filter(|on| *on >= self.since) {
            *minutes.entry(minute_of(started_on)).or_default() += 1;
        }
        let is_open = runs.iter().any(|run| run.is_waiting) || (has_gaps && !is_settled);
        let is_before = !is_open && minutes.is_empty() && newest.is_some_and(|on| on < self.since);
        self.parts.insert(number, Part { minutes, read_on: self.now, is_open, is_busy: false });
        Ok(is_before)
    }
}
