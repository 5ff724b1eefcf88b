//! The figures of the charts: how many runs started and how many tasks finished in each span of the last hour and of the last day.
//! A span that is over does not change, so it is read once and kept; while a page is open, only the newest spans are read again.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::database::{Database, SERVER};
use crate::hidden::nothing_to_hide;
use crate::problem::Problem;
use taskqueue_engine::inspect::ends::{Ends, count_ends};
use taskqueue_engine::inspect::starts::{FoundStarts, Starts};
use taskqueue_engine::{Context, EngineResult};

/// How often the newest spans are read at most.
const READ_EVERY: Duration = Duration::from_secs(5);
/// How long the first page waits for the first figures. In a large store they take longer, and then change the page.
const FIRST_LIMIT: Duration = Duration::from_millis(100);
/// How long after its end a span is read once more: a transaction that ended tasks in it may be committed later.
const SETTLED_AFTER: TimeDelta = TimeDelta::seconds(30);
/// How long the database may take for a part.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How much of a series one request to the database reads, in seconds: no statement and no request may take long.
const SECS_AT_ONCE: i64 = 3_600;

/// A span that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    ends: Ends,
    read_on: DateTime<Utc>,
}

nothing_to_hide!(Reading, FoundStarts);

/// The newest spans of one length, by their number since 1970.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    span_secs: i64,
    spans: i64,
    read: BTreeMap<i64, Reading>,
}

impl Series {
    const fn new(span_secs: i64, spans: i64) -> Self {
        Self { span_secs, spans, read: BTreeMap::new() }
    }

    /// Returns the numbers of the spans up to this time, oldest first. The last one is not over.
    const fn numbers(&self, now: DateTime<Utc>) -> RangeInclusive<i64> {
        let last = now.timestamp().div_euclid(self.span_secs);
        last - self.spans + 1..=last
    }

    fn start(&self, number: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(number * self.span_secs, 0).unwrap_or_default()
    }

    /// Returns the spans to read: the missing ones, newest first, then those that were read before they were over.
    fn wanted(&self, now: DateTime<Utc>) -> Vec<i64> {
        let is_open = |number: &i64| {
            self.read.get(number).is_some_and(|reading| reading.read_on < self.start(number + 1) + SETTLED_AFTER)
        };
        let missing = self.numbers(now).rev().filter(|number| !self.read.contains_key(number));
        missing.chain(self.numbers(now).rev().filter(is_open)).collect()
    }

    /// Reads the first part of the spans to read. Returns them, and whether there are more.
    fn read_some(&self, ctx: &mut Context, now: DateTime<Utc>) -> EngineResult<(Vec<(i64, Reading)>, bool)> {
        let wanted = self.wanted(now);
        let most = usize::try_from(SECS_AT_ONCE / self.span_secs).unwrap_or(1);
        let mut found = Vec::new();
        for number in wanted.iter().copied().take(most) {
            let ends = count_ends(ctx, self.start(number), self.start(number + 1))?;
            found.push((number, Reading { ends, read_on: now }));
        }
        Ok((found, wanted.len() > most))
    }

    /// Keeps what was read, and forgets what is too old. Returns whether a span is new.
    fn keep(&mut self, found: Vec<(i64, Reading)>, now: DateTime<Utc>) -> bool {
        let has_new = found.iter().any(|(number, _)| !self.read.contains_key(number));
        self.read.extend(found);
        let shown = self.numbers(now);
        self.read.retain(|number, _| shown.contains(number));
        has_new
    }

    /// Returns each span up to this time, oldest first.
    pub(crate) fn points(&self, starts: &Starts, now: DateTime<Utc>) -> Vec<Point> {
        let point = |number| Point {
            from: self.start(number),
            starts: starts.count(self.start(number), self.start(number + 1)),
            ends: self.read.get(&number).map(|reading| reading.ends),
        };
        self.numbers(now).map(point).collect()
    }
}

/// The figures of a span, as far as they were read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) from: DateTime<Utc>,
    pub(crate) starts: Option<i64>,
    pub(crate) ends: Option<Ends>,
}

/// What the charts show.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    /// The last hour in minutes.
    pub(crate) hour: Series,
    /// The last day in quarters of an hour.
    pub(crate) day: Series,
    pub(crate) starts: Starts,
    /// The time of the database at the last reading, and when that was.
    pub(crate) read_at: Option<(DateTime<Utc>, Instant)>,
    /// Why there are no newer figures.
    pub(crate) problem: Option<Problem>,
}

/// Reads the figures after a page has requested them.
pub(crate) struct Charts {
    database: Database,
    figures: watch::Sender<Figures>,
    wanted: Notify,
}

impl Charts {
    pub(crate) fn new(database: Database) -> Self {
        let (hour, day) = (Series::new(60, 60), Series::new(900, 96));
        let starts = Starts::default();
        let (figures, _) = watch::channel(Figures { hour, day, starts, read_at: None, problem: None });
        Self { database, figures, wanted: Notify::new() }
    }

    /// Returns the figures that were read so far, and has newer ones read for the next page.
    pub(crate) async fn figures(&self) -> Figures {
        self.wanted.notify_one();
        let mut figures = self.figures.subscribe();
        let is_first = |figures: &Figures| figures.read_at.is_none() && figures.problem.is_none();
        let _ = timeout(FIRST_LIMIT, figures.wait_for(|figures| !is_first(figures))).await;
        figures.borrow().clone()
    }

    /// Reads as long as the server runs, whenever a page has asked for figures. Calls `changed` when a span was added.
    pub(crate) async fn fill(&self, changed: impl Fn()) {
        loop {
            self.wanted.notified().await;
            while self.read(&changed).await {}
            sleep(READ_EVERY).await;
        }
    }

    /// Reads a part of what is missing, in one request to the database. Returns whether there is more.
    async fn read(&self, changed: &impl Fn()) -> bool {
        let Figures { hour, day, starts, .. } = self.figures.borrow().clone();
        let found = self.database.call(SERVER, move |ctx| {
            let now = ctx.now()?;
            let found = starts.read_some(ctx, first_shown(&day, now), now)?;
            Ok((now, hour.read_some(ctx, now)?, day.read_some(ctx, now)?, found))
        });
        let found = timeout(ANSWER_LIMIT, found).await.unwrap_or_else(|_| Err(Problem::silent()));
        let (now, (minutes, more_minutes), (quarters, more_quarters), starts) = match found {
            Ok(found) => found,
            Err(problem) => {
                self.figures.send_modify(|figures| figures.problem = Some(problem));
                return false;
            }
        };
        let mut has_new = false;
        let more_starts = starts.has_more;
        self.figures.send_modify(|figures| {
            has_new = figures.hour.keep(minutes, now) | figures.day.keep(quarters, now);
            has_new |= figures.starts.keep(starts, first_shown(&figures.day, now));
            (figures.read_at, figures.problem) = (Some((now, Instant::now())), None);
        });
        if has_new {
            changed();
        }
        more_minutes || more_quarters || more_starts
    }
}

/// Returns the beginning of the oldest span.
fn first_shown(day: &Series, now: DateTime<Utc>) -> DateTime<Utc> {
    day.start(*day.numbers(now).start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_040 + secs, 0).unwrap_or_default()
    }

    fn keep(series: &mut Series, numbers: &[i64], read_on: DateTime<Utc>) -> bool {
        let reading = Reading { ends: Ends { success: 1, ..Ends::default() }, read_on };
        series.keep(numbers.iter().map(|number| (*number, reading)).collect(), read_on)
    }

    #[test]
    fn a_span_is_read_until_it_has_been_over_for_a_while() {
        let mut series = Series::new(60, 3);
        let last = at(0).timestamp() / 60;
        assert_eq!(series.wanted(at(0)), [last, last - 1, last - 2]);
        assert!(keep(&mut series, &[last, last - 1, last - 2], at(0)));
        // The previous span ended less than SETTLED_AFTER ago, the one before it earlier.
        assert_eq!(series.wanted(at(10)), [last, last - 1]);
        assert!(!keep(&mut series, &[last, last - 1], at(40)));
        assert_eq!(series.wanted(at(70)), [last + 1, last]);
    }

    #[test]
    fn spans_that_are_too_old_or_in_the_future_are_forgotten() {
        let mut series = Series::new(60, 3);
        let last = at(0).timestamp() / 60;
        let _ = keep(&mut series, &[last, last - 1, last - 2], at(0));
        let _ = keep(&mut series, &[last + 2], at(120));
        let known = |series: &Series, now| {
            series.points(&Starts::default(), now).iter().map(|point| point.ends.is_some()).collect::<Vec<_>>()
        };
        assert_eq!(known(&series, at(120)), [true, false, true]);
        // The clock of the database was set back.
        let _ = keep(&mut series, &[], at(0));
        assert_eq!(known(&series, at(0)), [false, false, true]);
    }
}
