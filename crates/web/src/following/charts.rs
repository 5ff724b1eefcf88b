//! The figures of the charts: how many runs started and how many tasks finished in each span of the last hour and of the last day.
//! A minute that is over does not change, so it is read once and kept; while a page is open, only the newest ones are read again.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::querying::database::{Database, SERVER};
use crate::querying::hidden::nothing_to_hide;
use crate::serving::problem::Problem;
use taskqueue_engine::inspect::ends::{Ends, count_ends};
use taskqueue_engine::inspect::starts::{FoundStarts, Starts};
use taskqueue_engine::{Context, EngineResult};

/// How often the newest spans are read at most.
const READ_EVERY: Duration = Duration::from_secs(5);
/// How long the first page waits for the first figures. In a large store they take longer, and then change the page.
const FIRST_LIMIT: Duration = Duration::from_millis(100);
/// How long after its end a minute is read once more: a transaction that ended tasks in it may be committed later.
const SETTLED_AFTER: TimeDelta = TimeDelta::seconds(30);
/// How long the database may take for a part.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How many minutes one request to the database reads: no statement and no request may take long.
const MINUTES_AT_ONCE: usize = 60;

/// How long reading pauses after each part, as a multiple of the time that the part took: pages need the database more urgently.
const PAUSE_RATIO: u32 = 3;

/// A minute that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    ends: Ends,
    read_on: DateTime<Utc>,
}

nothing_to_hide!(Reading, FoundStarts);

/// The ends in each minute of the last day, by its number since 1970. A chart adds them up to its spans.
#[derive(Clone, Debug, Default)]
pub(crate) struct Minutes {
    read: BTreeMap<i64, Reading>,
}

impl Minutes {
    /// Returns the numbers of the minutes up to this time, oldest first. The last one is not over.
    const fn numbers(now: DateTime<Utc>) -> RangeInclusive<i64> {
        *DAY.minutes(*DAY.numbers(now).start()).start()..=minute_of(now)
    }

    /// Returns the minutes to read: the missing ones, newest first, then those that were read before they were over.
    fn wanted(&self, now: DateTime<Utc>) -> Vec<i64> {
        let is_open = |number: &i64| {
            self.read.get(number).is_some_and(|reading| reading.read_on < start_of(number + 1) + SETTLED_AFTER)
        };
        let missing = Self::numbers(now).rev().filter(|number| !self.read.contains_key(number));
        missing.chain(Self::numbers(now).rev().filter(is_open)).collect()
    }

    /// Reads the first minutes of those to read. Returns them, and whether there are more.
    fn read_some(&self, ctx: &mut Context, now: DateTime<Utc>) -> EngineResult<(Vec<(i64, Reading)>, bool)> {
        let wanted = self.wanted(now);
        let mut found = Vec::new();
        for number in wanted.iter().copied().take(MINUTES_AT_ONCE) {
            let ends = count_ends(ctx, start_of(number), start_of(number + 1))?;
            found.push((number, Reading { ends, read_on: now }));
        }
        Ok((found, wanted.len() > MINUTES_AT_ONCE))
    }

    /// Keeps what was read, and forgets what is too old. Returns whether a minute is new.
    fn keep(&mut self, found: Vec<(i64, Reading)>, now: DateTime<Utc>) -> bool {
        let has_new = found.iter().any(|(number, _)| !self.read.contains_key(number));
        self.read.extend(found);
        let shown = Self::numbers(now);
        self.read.retain(|number, _| shown.contains(number));
        has_new
    }
}

/// What a chart shows: the newest spans of one length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    span_minutes: i64,
    spans: i64,
}

/// The last hour in minutes.
pub(crate) const HOUR: Shape = Shape { span_minutes: 1, spans: 60 };
/// The last day in quarters of an hour.
pub(crate) const DAY: Shape = Shape { span_minutes: 15, spans: 96 };

impl Shape {
    /// Returns the numbers of the spans up to this time since 1970, oldest first. The last one is not over.
    const fn numbers(self, now: DateTime<Utc>) -> RangeInclusive<i64> {
        let last = minute_of(now).div_euclid(self.span_minutes);
        last - self.spans + 1..=last
    }

    /// Returns the numbers of the minutes of a span.
    const fn minutes(self, span: i64) -> RangeInclusive<i64> {
        span * self.span_minutes..=(span + 1) * self.span_minutes - 1
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
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    minutes: Minutes,
    starts: Starts,
    /// The time of the database at the last reading, and when that was.
    pub(crate) read_at: Option<(DateTime<Utc>, Instant)>,
    /// Why there are no newer figures.
    pub(crate) problem: Option<Problem>,
}

impl Figures {
    /// Returns each span of a chart up to this time, oldest first.
    pub(crate) fn points(&self, shape: Shape, now: DateTime<Utc>) -> Vec<Point> {
        let ends = |minute: i64| self.minutes.read.get(&minute).map(|reading| reading.ends);
        let point = |span| {
            let (first, last) = shape.minutes(span).into_inner();
            Point {
                from: start_of(first),
                starts: self.starts.count(start_of(first), start_of(last + 1)),
                ends: (first..=last.min(minute_of(now))).map(ends).sum(),
            }
        };
        shape.numbers(now).map(point).collect()
    }
}

/// Reads the figures after a page has requested them.
pub(crate) struct Charts {
    database: Database,
    figures: watch::Sender<Figures>,
    wanted: Notify,
}

impl Charts {
    pub(crate) fn new(database: Database) -> Self {
        let (figures, _) = watch::channel(Figures::default());
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

    /// Reads as long as the server runs, whenever a page has asked for figures. Calls `changed` when a minute was added.
    pub(crate) async fn fill(&self, changed: impl Fn()) {
        loop {
            self.wanted.notified().await;
            loop {
                let started = Instant::now();
                if !self.read(&changed).await {
                    break;
                }
                sleep(started.elapsed() * PAUSE_RATIO).await;
            }
            sleep(READ_EVERY).await;
        }
    }

    /// Reads a part of what is missing, in one request to the database. Returns whether there is more.
    async fn read(&self, changed: &impl Fn()) -> bool {
        let Figures { minutes, starts, .. } = self.figures.borrow().clone();
        let found = self.database.call(SERVER, move |ctx| {
            let now = ctx.now()?;
            Ok((now, minutes.read_some(ctx, now)?, starts.read_some(ctx, first_shown(now), now)?))
        });
        let found = timeout(ANSWER_LIMIT, found).await.unwrap_or_else(|_| Err(Problem::silent()));
        let (now, (minutes, more_minutes), starts) = match found {
            Ok(found) => found,
            Err(problem) => {
                self.figures.send_modify(|figures| figures.problem = Some(problem));
                return false;
            }
        };
        let mut has_new = false;
        let more_starts = starts.has_more;
        self.figures.send_modify(|figures| {
            has_new = figures.minutes.keep(minutes, now) | figures.starts.keep(starts, first_shown(now));
            (figures.read_at, figures.problem) = (Some((now, Instant::now())), None);
        });
        if has_new {
            changed();
        }
        more_minutes || more_starts
    }
}

/// Returns the beginning of the oldest minute that a chart shows.
fn first_shown(now: DateTime<Utc>) -> DateTime<Utc> {
    start_of(*Minutes::numbers(now).start())
}

const fn minute_of(on: DateTime<Utc>) -> i64 {
    on.timestamp().div_euclid(60)
}

fn start_of(minute: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(minute * 60, 0).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_040 + secs, 0).unwrap_or_default()
    }

    fn keep(minutes: &mut Minutes, numbers: &[i64], read_on: DateTime<Utc>) -> bool {
        let reading = Reading { ends: Ends { success: 1, ..Ends::default() }, read_on };
        minutes.keep(numbers.iter().map(|number| (*number, reading)).collect(), read_on)
    }

    #[test]
    fn a_minute_is_read_until_it_has_been_over_for_a_while() {
        let mut minutes = Minutes::default();
        let last = minute_of(at(0));
        let all: Vec<i64> = Minutes::numbers(at(0)).rev().collect();
        assert_eq!(minutes.wanted(at(0)), all);
        assert_eq!(all.first(), Some(&last));
        assert!(keep(&mut minutes, &all, at(0)));
        // The previous minute ended less than SETTLED_AFTER ago, the one before it earlier.
        assert_eq!(minutes.wanted(at(10)), [last, last - 1]);
        assert!(!keep(&mut minutes, &[last, last - 1], at(40)));
        assert_eq!(minutes.wanted(at(70)), [last + 1, last]);
    }

    #[test]
    fn minutes_that_are_too_old_or_in_the_future_are_forgotten() {
        let mut minutes = Minutes::default();
        let (oldest, last) = Minutes::numbers(at(120)).into_inner();
        let _ = keep(&mut minutes, &[oldest - 1, oldest, last, last + 1], at(120));
        assert_eq!(minutes.read.keys().copied().collect::<Vec<_>>(), [oldest, last]);
        // The clock of the database was set back.
        let _ = keep(&mut minutes, &[], at(0));
        assert_eq!(minutes.read.keys().copied().collect::<Vec<_>>(), [oldest]);
    }

    #[test]
    fn a_span_is_shown_once_all_its_minutes_were_read() {
        let mut figures = Figures::default();
        // In the middle of a quarter: the minutes that are still to come are not missing.
        let now = at(120);
        let quarter = *DAY.numbers(now).end();
        let minutes: Vec<i64> = DAY.minutes(quarter).filter(|minute| *minute <= minute_of(now)).collect();
        assert!((2..15).contains(&minutes.len()));
        let last = |figures: &Figures| figures.points(DAY, now).last().and_then(|point| point.ends).map(Ends::all);
        let _ = keep(&mut figures.minutes, &minutes[1..], now);
        assert_eq!(last(&figures), None);
        let _ = keep(&mut figures.minutes, &minutes[..1], now);
        assert_eq!(last(&figures), i64::try_from(minutes.len()).ok());
        assert_eq!(figures.points(HOUR, now).len(), 60);
    }
}
