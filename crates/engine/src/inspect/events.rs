//! `events`: lists stored events and follows new ones. A program that uses the library calls [`listen`].
//!
//! An event gets its id before its transaction is committed, so an event with a lower id may appear after one with a higher id.
//! A follower therefore remembers missing ids and checks them for a while.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use crate::upkeep::event_gaps::Gaps;
use taskqueue_process::signals::stop_signals::StopSignals;
pub use taskqueue_store::{Event, EventFilter};

/// The kinds of events (docs/events.md); a newer program may store others.
pub const KINDS: [&str; 45] = [
    "cancel-requested",
    "cancelled",
    "claimed",
    "class-released",
    "clock-set",
    "drained",
    "edited",
    "expired",
    "failed",
    "imported",
    "key-taken",
    "late-result",
    "limit-removed",
    "limit-set",
    "message",
    "message-to-task",
    "messages-dropped",
    "meta-refused",
    "pause-over",
    "paused",
    "pruned",
    "quarantined",
    "rejected",
    "released",
    "replaced",
    "rescued",
    "resolved",
    "resumed",
    "retried",
    "retry",
    "run-created",
    "run-ended",
    "run-started",
    "schedule-broken",
    "schedule-edited",
    "schedule-paused",
    "schedule-removed",
    "schedule-resumed",
    "schedule-run",
    "setting-changed",
    "skipped",
    "stopped",
    "taken-back",
    "task-queued",
    "unreadable-line",
];

/// How often a listener polls the database.
pub const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How many events before the first followed one are checked, because they may not be committed yet.
const RECENT: i64 = 50_000;

/// Returns the newest `limit` of these events, oldest first.
///
/// # Errors
/// Returns an error if the database fails.
pub fn list(ctx: &mut Context, filter: &EventFilter, limit: i64) -> EngineResult<Vec<Event>> {
    ctx.check_family_of_events(filter)?;
    Ok(ctx.store.list_events(filter, limit)?)
}

/// Checks that the task and the run of this filter exist or existed. The events of a pruned task may be left; without any event
/// it may never have existed.
///
/// # Errors
/// Returns an error if there is no such task or run, or if the database fails.
pub fn expect_subject(ctx: &mut Context, filter: &EventFilter) -> EngineResult<()> {
    if let Some(task_id) = filter.task_id {
        let of_task = EventFilter { task_id: Some(task_id), ..EventFilter::default() };
        if ctx.store.list_events(&of_task, 1)?.is_empty() {
            ctx.store.get_task(task_id)?;
        }
    }
    if let Some(run_id) = filter.run_id {
        // With the task: the events of a deleted run can only be found by their task.
        let of_run = EventFilter { run_id: Some(run_id), task_id: filter.task_id, ..EventFilter::default() };
        if ctx.store.list_events(&of_run, 1)?.is_empty() {
            ctx.store.get_run(run_id)?;
        }
    }
    Ok(())
}

/// Returns the filter for [`EventFilter::matches`]: with the task of its run, which must exist or have existed.
///
/// # Errors
/// Returns an error if there is no such task or run, or if the database fails.
pub fn subject_of(ctx: &mut Context, filter: EventFilter) -> EngineResult<EventFilter> {
    ctx.check_family_of_events(&filter)?;
    expect_subject(ctx, &filter)?;
    Ok(ctx.store.with_task(filter)?)
}

/// Follows events; returns each once.
#[derive(Debug)]
pub struct Follower {
    filter: EventFilter,
    last_id: i64,
    gaps: Gaps,
}

impl Follower {
    /// Creates a follower for new events.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub fn from_now(ctx: &mut Context, filter: EventFilter) -> EngineResult<Self> {
        ctx.check_family_of_events(&filter)?;
        let filter = ctx.store.with_task(filter)?;
        let ids = ctx.store.newest_event_ids(RECENT)?;
        let first = ids.first().copied().unwrap_or(0);
        let mut follower = Self { filter, last_id: first, gaps: Gaps::default() };
        for id in ids {
            follower.saw(id);
        }
        Ok(follower)
    }

    /// Returns the events since the last call, in the order of their ids.
    ///
    /// # Errors
    /// Returns an error if the database fails; the next call then returns the same events.
    pub fn next(&mut self, ctx: &mut Context) -> EngineResult<Vec<Event>> {
        let (mut events, mut ids) = (Vec::new(), Vec::new());
        let mut page = ctx.store.events_within(&self.gaps.next_ranges())?;
        loop {
            // Of events that do not match, only the id is kept: a large store has many.
            ids.extend(page.iter().map(|event| event.id));
            events.extend(page.into_iter().filter(|event| self.filter.matches(event)));
            page = ctx.store.events_after(self.last_id.max(ids.last().copied().unwrap_or(0)))?;
            if page.is_empty() {
                break;
            }
        }
        ids.into_iter().for_each(|id| self.saw(id));
        self.gaps.give_up_old();
        Ok(events)
    }

    /// Returns what it has passed.
    #[must_use]
    pub fn passed(&self) -> Passed {
        Passed { last_id: self.last_id, missing: self.gaps.ranges() }
    }

    fn saw(&mut self, id: i64) {
        if id <= self.last_id {
            self.gaps.close(id);
            return;
        }
        self.gaps.open_between(self.last_id, id);
        self.last_id = id;
    }
}

/// What a follower has passed: every event up to `last_id`, except those that it may still return.
#[derive(Clone, Debug)]
pub struct Passed {
    /// The highest id.
    pub last_id: i64,
    missing: Vec<(i64, i64)>,
}

/// A page of events that a follower has passed.
#[derive(Debug)]
pub struct PassedPage {
    /// The events, in the order of their ids.
    pub events: Vec<Event>,
    /// The id after which the next page begins; that of the follower if this is the last page.
    pub last_id: i64,
}

impl Passed {
    /// Returns a page of the events after this id.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub fn page(&self, ctx: &mut Context, after: i64) -> EngineResult<PassedPage> {
        let mut events = ctx.store.events_after(after)?;
        let last_id = events.last().map_or(self.last_id, |event| event.id.min(self.last_id));
        events.retain(|event| event.id <= self.last_id && !self.is_missing(event.id));
        Ok(PassedPage { events, last_id })
    }

    fn is_missing(&self, id: i64) -> bool {
        let next = self.missing.partition_point(|(_, last)| *last < id);
        self.missing.get(next).is_some_and(|(first, _)| *first <= id)
    }
}

/// Calls `heard` with each new event until it returns a break or a signal comes.
///
/// # Errors
/// Returns an error if the database fails.
pub fn listen(
    ctx: &mut Context,
    filter: EventFilter,
    stop: &StopSignals,
    heard: &mut dyn FnMut(&Event) -> ControlFlow<()>,
) -> EngineResult<()> {
    let mut follower = Follower::from_now(ctx, filter)?;
    follow(ctx, &mut follower, stop, &mut |event| EngineResult::Ok(heard(event)))
}

/// Like [`listen`], with an existing follower and a callback that may fail.
///
/// # Errors
/// Returns an error if the database or the callback fails.
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

    #[test]
    fn what_a_follower_has_passed_excludes_what_it_may_still_return() {
        let mut follower = Follower { filter: EventFilter::default(), last_id: 10, gaps: Gaps::default() };
        [12, 20, 21].into_iter().for_each(|id| follower.saw(id));
        let passed = follower.passed();
        let missing: Vec<i64> = (1..=30).filter(|id| passed.is_missing(*id)).collect();
        assert_eq!((passed.last_id, missing), (21, [vec![11], (13..=19).collect()].concat()));
    }

    #[test]
    fn ids_that_are_passed_over_are_looked_for_until_they_are_seen() {
        let mut follower = Follower { filter: EventFilter::default(), last_id: 10, gaps: Gaps::default() };
        follower.saw(40_000);
        assert_eq!(follower.gaps.ranges(), [(11, 39_999)]);
        follower.saw(11);
        follower.saw(20_000);
        assert_eq!((follower.gaps.ranges(), follower.last_id), (vec![(12, 19_999), (20_001, 39_999)], 40_000));
        follower.saw(40_001);
        assert_eq!(follower.gaps.ranges().len(), 2);
    }
}
