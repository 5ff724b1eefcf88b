//! Reads TaskQueueEvents: the newest events, and new ones.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::cells::{ShownText, TimeOrPast};
use crate::base::schema::task_queue_events::dsl::{
    actor, details, host, id, kind, occurred_on, run_id, task_queue_events, task_queue_id,
};
use crate::base::schema::task_queue_runs;
use crate::records::task_messages::MESSAGE_TO_TASK;
use crate::{Store, StoreResult};
use taskqueue_domain::run::message::Message;
use taskqueue_domain::task::ids::{RunId, TaskId};

/// Events read with one query.
const PAGE: i64 = 1_000;
/// A range of at most this many ids is queried by single ids, together with other such ranges.
const NARROW: i64 = 10;
/// Ids in one statement. MariaDB materializes a list of 1000, and reads that first.
const IDS_PER_STATEMENT: usize = 500;

/// A recorded event.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Event {
    /// Id
    pub id: i64,
    /// When it happened, by the database's clock.
    pub occurred_on: DateTime<Utc>,
    /// What happened.
    pub kind: String,
    /// Its task.
    pub task_id: Option<TaskId>,
    /// Its run.
    pub run_id: Option<RunId>,
    /// Who caused it.
    pub actor: String,
    /// The host.
    pub host: String,
    /// Further details as JSON text.
    pub details: String,
}

impl Event {
    /// Returns the details deserialized into `T`.
    ///
    /// # Errors
    /// The details do not deserialize into `T`.
    pub fn details_as<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(&self.details)
    }

    /// Returns the message that this event stores; `None` if it is not a message.
    #[must_use]
    pub fn message(&self) -> Option<Message> {
        let is_message = self.kind == "message" || self.kind == MESSAGE_TO_TASK;
        is_message.then(|| Message::from_details(&self.details)).flatten()
    }
}

/// A filter for events.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Events of this task.
    pub task_id: Option<TaskId>,
    /// Events of this run; also messages to every attempt of its task.
    pub run_id: Option<RunId>,
    /// Events of one of these kinds; empty means all.
    pub kinds: Vec<String>,
    /// Caused by this user.
    pub actor: Option<String>,
    /// Not before this time.
    pub since: Option<DateTime<Utc>>,
    /// Only events with an id below this one.
    pub before: Option<i64>,
}

impl EventFilter {
    /// Returns true if this event matches.
    #[must_use]
    pub fn matches(&self, event: &Event) -> bool {
        self.task_id.is_none_or(|task| event.task_id == Some(task))
            && self.run_id.is_none_or(|run| event.run_id == Some(run) || self.is_to_every_attempt(event))
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
            && self.actor.as_ref().is_none_or(|by| event.actor == *by)
            && self.since.is_none_or(|since| event.occurred_on >= since)
            && self.before.is_none_or(|before| event.id < before)
    }
}

impl EventFilter {
    /// Returns true if the event is a message to every attempt of the task of the given run.
    fn is_to_every_attempt(&self, event: &Event) -> bool {
        event.kind == MESSAGE_TO_TASK && event.run_id.is_none() && self.task_id.is_some()
    }
}

/// Returns true if a range of ids, both ends included, is queried together with others.
#[must_use]
pub const fn is_narrow_range((first, last): (i64, i64)) -> bool {
    last - first < NARROW
}

type EventRow = (i64, TimeOrPast, ShownText, Option<i64>, Option<i64>, ShownText, ShownText, ShownText);
const COLUMNS: (id, occurred_on, kind, task_queue_id, run_id, actor, host, details) =
    (id, occurred_on, kind, task_queue_id, run_id, actor, host, details);

fn event((event_id, when, what, task, run, who, place, rest): EventRow) -> Event {
    Event {
        id: event_id,
        occurred_on: when.into(),
        kind: what.0,
        task_id: task.map(TaskId),
        run_id: run.map(RunId),
        actor: who.0,
        host: place.0,
        details: rest.0,
    }
}

impl Store {
    /// Returns the newest `limit` of these events, oldest first. Each kind is read from an index, and events of a run from the
    /// index of its task.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_events(&mut self, filter: &EventFilter, limit: i64) -> StoreResult<Vec<Event>> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let filter = &self.with_task(filter.clone())?;
        // The events of a run are deleted with it.
        if filter.run_id.is_some() && filter.task_id.is_none() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        if filter.task_id.is_some() || filter.kinds.is_empty() {
            found = self.newest_events(filter, None, limit)?;
        } else {
            for one in &filter.kinds {
                found.extend(self.newest_events(filter, Some(one), limit)?);
            }
        }
        found.sort_by_key(|event| std::cmp::Reverse(event.id));
        found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        found.reverse();
        Ok(found)
    }

    /// Returns the newest `limit` events of a task, newest first.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_events_of_task(&mut self, task_id: TaskId, limit: i64) -> StoreResult<Vec<Event>> {
        let filter = EventFilter { task_id: Some(task_id), ..EventFilter::default() };
        let mut events = self.list_events(&filter, limit)?;
        events.reverse();
        Ok(events)
    }

    /// Returns the filter with the task of its run added, if it has only a run.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn with_task(&mut self, filter: EventFilter) -> StoreResult<EventFilter> {
        let task_id = match (filter.task_id, filter.run_id) {
            (None, Some(run)) => self.task_of_run(run)?,
            (task, _) => task,
        };
        Ok(EventFilter { task_id, ..filter })
    }

    fn task_of_run(&mut self, run: RunId) -> StoreResult<Option<TaskId>> {
        use task_queue_runs::dsl;
        let found: Option<i64> = self.read(|conn| {
            let task = dsl::task_queue_runs.filter(dsl::id.eq(run.0)).select(dsl::task_queue_id);
            Ok(task.first(conn).optional()?)
        })?;
        Ok(found.map(TaskId))
    }

    /// Reads page by page, so that a search for rare events stops at the start of the given period. Does not continue from the
    /// last id: with that bound, SQLite scans the primary key and ignores the index of kinds. `+ 0` hides a bound from it.
    fn newest_events(&mut self, filter: &EventFilter, of_kind: Option<&str>, limit: i64) -> StoreResult<Vec<Event>> {
        let (mut found, mut passed, size) = (BTreeMap::new(), 0, limit.clamp(100, PAGE));
        let before = filter.before.unwrap_or(i64::MAX);
        loop {
            let rows: Vec<EventRow> = self.read(|conn| {
                let page = task_queue_events.limit(size).offset(passed).select(COLUMNS);
                Ok(match (filter.task_id, of_kind) {
                    (Some(task), _) => {
                        let of_task = page.filter(task_queue_id.eq(task.0)).filter((id + 0).lt(before));
                        of_task.order((task_queue_id.desc(), id.desc())).load(conn)?
                    }
                    (None, Some(one)) => page
                        .filter(kind.eq(one))
                        .filter((id + 0).lt(before))
                        .order((kind.desc(), id.desc()))
                        .load(conn)?,
                    (None, None) => page.filter(id.lt(before)).order(id.desc()).load(conn)?,
                })
            })?;
            let events: Vec<Event> = rows.into_iter().map(event).collect();
            passed += size;
            let is_over = filter.since.is_some_and(|since| events.iter().all(|event| event.occurred_on < since));
            let is_last = events.is_empty() || is_over;
            // New events move the pages, so an event may be read twice.
            found.extend(events.into_iter().filter(|event| filter.matches(event)).map(|event| (event.id, event)));
            if is_last || i64::try_from(found.len()).unwrap_or(i64::MAX) >= limit {
                return Ok(found.into_values().collect());
            }
        }
    }

    /// Returns up to a page of the events after this one, of all kinds, in order.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn events_after(&mut self, after: i64) -> StoreResult<Vec<Event>> {
        self.read_each(event, |conn| {
            task_queue_events.filter(id.gt(after)).order(id).limit(PAGE).select(COLUMNS).load(conn)
        })
    }

    /// Returns the events whose ids are in these ranges, both ends included, in order. Uses one statement for each wide range and
    /// one for many narrow ranges. For several ranges in one condition, PostgreSQL would use bitmap scans or, if those are
    /// disabled, read all events.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn events_within(&mut self, ranges: &[(i64, i64)]) -> StoreResult<Vec<Event>> {
        let narrow = ranges.iter().copied().filter(|range| is_narrow_range(*range));
        let ids: Vec<i64> = narrow.flat_map(|(first, last)| first..=last).collect();
        let mut found: Vec<EventRow> = Vec::new();
        for part in ids.chunks(IDS_PER_STATEMENT) {
            found.extend(
                self.read(|conn| {
                    Ok(task_queue_events.filter(id.eq_any(part)).select(COLUMNS).load::<EventRow>(conn)?)
                })?,
            );
        }
        for (first, last) in ranges.iter().copied().filter(|range| !is_narrow_range(*range)) {
            found.extend(self.read(|conn| {
                let range = task_queue_events.filter(id.between(first, last)).order(id);
                Ok(range.select(COLUMNS).load::<EventRow>(conn)?)
            })?);
        }
        let mut events: Vec<Event> = found.into_iter().map(event).collect();
        events.sort_unstable_by_key(|event| event.id);
        Ok(events)
    }

    /// Returns the ids of the newest `limit` events, in order.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn newest_event_ids(&mut self, limit: i64) -> StoreResult<Vec<i64>> {
        let mut ids: Vec<i64> =
            self.read(|conn| Ok(task_queue_events.order(id.desc()).limit(limit).select(id).load(conn)?))?;
        ids.reverse();
        Ok(ids)
    }
}
