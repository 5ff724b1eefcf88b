//! `events`: what was kept, and following what comes. A program built on the library listens with [`listen`].
//!
//! Ids are given out before a transaction is committed: an event with a lower id may appear after one with a higher id. A
//! follower therefore remembers the ids that it has not seen, and looks for them for a while.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use super::{Context, EngineError, EngineResult};
use crate::os::clock::Moment;
use crate::os::stop_signals::StopSignals;
pub use crate::store::{Event, EventFilter};

/// How often a listener asks the database.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How long an id that is missing is looked for: longer than any transaction of this program takes.
const GAP_WAIT: Duration = Duration::from_secs(120);
/// Missing ids that are looked for at once; the oldest are given up beyond that.
const MAX_GAPS: usize = 1_000;

/// The newest `limit` of these events, oldest first.
///
/// # Errors
/// The database's.
pub fn list(ctx: &mut Context, filter: &EventFilter, limit: i64) -> EngineResult<Vec<Event>> {
    Ok(ctx.store.list_events(filter, limit)?)
}

/// Sees every event once.
#[derive(Debug)]
pub struct Follower {
    filter: EventFilter,
    last_id: i64,
    gaps: BTreeMap<i64, Moment>,
}

impl Follower {
    /// From now on.
    ///
    /// # Errors
    /// The database's.
    pub fn from_now(ctx: &mut Context, filter: EventFilter) -> EngineResult<Self> {
        let ids = ctx.store.newest_event_ids()?;
        let first = ids.first().copied().unwrap_or(0);
        let mut follower = Self { filter, last_id: first, gaps: BTreeMap::new() };
        for id in ids {
            follower.saw(id);
        }
        Ok(follower)
    }

    /// What has come since the last call, in the order of its ids.
    ///
    /// # Errors
    /// The database's; nothing is passed over then.
    pub fn next(&mut self, ctx: &mut Context) -> EngineResult<Vec<Event>> {
        let mut events = Vec::new();
        if !self.gaps.is_empty() {
            let missing: Vec<i64> = self.gaps.keys().copied().collect();
            events = ctx.store.events_with_ids(&missing)?;
        }
        loop {
            let page = ctx.store.events_after(self.last_id.max(events.last().map_or(0, |event: &Event| event.id)))?;
            if page.is_empty() {
                break;
            }
            events.extend(page);
        }
        for event in &events {
            self.saw(event.id);
        }
        self.gaps.retain(|_, until| !until.has_passed());
        events.retain(|event| self.filter.matches(event));
        Ok(events)
    }

    fn saw(&mut self, id: i64) {
        if self.gaps.remove(&id).is_some() || id <= self.last_id {
            return;
        }
        let most = i64::try_from(MAX_GAPS).unwrap_or(i64::MAX);
        for missing in (self.last_id + 1).max(id - most)..id {
            self.gaps.insert(missing, Moment::after(GAP_WAIT));
        }
        while self.gaps.len() > MAX_GAPS {
            self.gaps.pop_first();
        }
        self.last_id = id;
    }
}

/// Calls `heard` with each event that comes, until it breaks off or a signal comes.
///
/// # Errors
/// The database's.
pub fn listen(
    ctx: &mut Context,
    filter: EventFilter,
    stop: &StopSignals,
    heard: &mut dyn FnMut(&Event) -> ControlFlow<()>,
) -> EngineResult<()> {
    let mut follower = Follower::from_now(ctx, filter)?;
    follow(ctx, &mut follower, stop, &mut |event| EngineResult::Ok(heard(event)))
}

/// The same with a follower that began earlier, and a listener that may fail.
///
/// # Errors
/// The database's, and those of the listener.
pub fn follow<E: From<EngineError>>(
    ctx: &mut Context,
    follower: &mut Follower,
    stop: &StopSignals,
    heard: &mut dyn FnMut(&Event) -> Result<ControlFlow<()>, E>,
) -> Result<(), E> {
    loop {
        for event in follower.next(ctx)? {
            if heard(&event)?.is_break() {
                return Ok(());
            }
        }
        if stop.wait(POLL_INTERVAL) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follower(last_id: i64) -> Follower {
        Follower { filter: EventFilter::default(), last_id, gaps: BTreeMap::new() }
    }

    #[test]
    fn ids_that_are_passed_over_are_looked_for_until_they_are_seen() {
        let mut follower = follower(10);
        follower.saw(13);
        assert_eq!(follower.gaps.keys().copied().collect::<Vec<_>>(), [11, 12]);
        follower.saw(11);
        assert_eq!((follower.gaps.keys().copied().collect::<Vec<_>>(), follower.last_id), (vec![12], 13));
        follower.saw(14);
        assert_eq!(follower.gaps.len(), 1);
    }

    #[test]
    fn a_huge_gap_is_not_looked_for_whole() {
        let mut follower = follower(0);
        follower.saw(1_000_000_000);
        assert_eq!((follower.gaps.len(), follower.last_id), (MAX_GAPS, 1_000_000_000));
        assert_eq!(follower.gaps.keys().next_back(), Some(&999_999_999));
    }
}
