//! `/api/v1/events`: the newest events, and a stream of new ones.

use std::convert::Infallible;

use axum::extract::Query;
use axum::http::HeaderMap;
use axum::response::sse::{self, KeepAlive, Sse};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};

use crate::api::json::JsonAnswer;
use crate::app::Caller;
use crate::following::feed::{Line, Subscription};
use crate::following::stream::ALIVE_EVERY;
use crate::pages::tasks::selections::MOST;
use crate::serving::problem::Problem;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_engine::inspect::events::{Event, EventFilter, KINDS, expect_subject, list, subject_of};
use taskqueue_engine::{Context, EngineResult};
use taskqueue_views::json::{Object, event_json};

/// How many lines a stream is ahead of its reader.
const LINES_AHEAD: usize = 16;

/// Which events.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EventsQuery {
    pub(crate) task: Option<i64>,
    pub(crate) run: Option<i64>,
    /// With commas between them.
    pub(crate) kind: String,
    pub(crate) by: Option<String>,
}

impl EventsQuery {
    pub(crate) fn filter(self) -> Result<EventFilter, Problem> {
        let kinds: Vec<String> =
            self.kind.split(',').map(str::trim).filter(|kind| !kind.is_empty()).map(str::to_owned).collect();
        if let Some(unknown) = kinds.iter().find(|kind| !KINDS.contains(&kind.as_str())) {
            return Err(Problem::input(format!("kind: there is no kind \"{unknown}\"; docs/events.md lists them")));
        }
        let (task_id, run_id) = (self.task.map(TaskId), self.run.map(RunId));
        Ok(EventFilter { task_id, run_id, kinds, actor: self.by, since: None, before: None })
    }
}

pub(crate) async fn newest(caller: Caller, Query(query): Query<EventsQuery>) -> Result<JsonAnswer<Object>, Problem> {
    let filter = query.filter()?;
    let events = caller.call(move |ctx| newest_of(ctx, &filter)).await?;
    Ok(JsonAnswer(Object::default().with("events", &events.iter().map(event_json).collect::<Vec<_>>())))
}

fn newest_of(ctx: &mut Context, filter: &EventFilter) -> EngineResult<Vec<Event>> {
    let found = list(ctx, filter, MOST)?;
    if found.is_empty() {
        expect_subject(ctx, filter)?;
    }
    Ok(found)
}

/// Follows new events, or all events after the one whose id is the header `Last-Event-ID`.
pub(crate) async fn stream(
    caller: Caller,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>, Problem> {
    let after = last_event_id(&headers)?;
    let mut filter = query.filter()?;
    if filter.task_id.is_some() || filter.run_id.is_some() {
        filter = caller.call(move |ctx| subject_of(ctx, filter)).await?;
    }
    // Before the answer, so that its reader gets every event from then on.
    let subscription = caller.app.feed.subscribe().await?;
    let (lines, receiver) = mpsc::channel(LINES_AHEAD);
    let after = after.unwrap_or(subscription.passed.last_id);
    let mut reader = Reader { caller, filter, after, lines };
    tokio::spawn(async move { reader.follow(subscription).await });
    Ok(Sse::new(ReceiverStream::new(receiver).map(Ok)).keep_alive(KeepAlive::new().interval(ALIVE_EVERY)))
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<i64>, Problem> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let id = value.to_str().ok().and_then(|text| text.parse().ok());
    id.map(Some).ok_or_else(|| Problem::input("Last-Event-ID: the id of an event is a whole number"))
}

/// Why a stream ends.
struct Ended;

/// A reader of a stream.
struct Reader {
    caller: Caller,
    filter: EventFilter,
    /// The highest id of the events that it has passed.
    after: i64,
    lines: mpsc::Sender<sse::Event>,
}

impl Reader {
    /// Follows until the reader has gone, its token was removed, or the database fails: then it connects again with the id of its
    /// last event.
    async fn follow(&mut self, first: Subscription) {
        let lines = self.lines.clone();
        tokio::select! {
            () = lines.closed() => {}
            _ = self.send_all(first) => {}
        }
    }

    /// Ends also if the reader is so slow that the oldest new events are no longer in memory.
    async fn send_all(&mut self, mut subscription: Subscription) -> Result<(), Ended> {
        self.catch_up(&subscription).await?;
        loop {
            let line = subscription.lines.recv().await.map_err(|_| Ended)?;
            self.send(&line).await?;
        }
    }

    /// Sends what the feed had passed before the subscription.
    async fn catch_up(&mut self, subscription: &Subscription) -> Result<(), Ended> {
        while self.after < subscription.passed.last_id {
            let page = self.caller.app.feed.page(&subscription.passed, self.after).await.map_err(|_| Ended)?;
            for event in page.events {
                self.send(&Line::of(event)).await?;
            }
            self.after = self.after.max(page.last_id);
        }
        Ok(())
    }

    async fn send(&mut self, line: &Line) -> Result<(), Ended> {
        let id = line.event.id;
        self.caller.check().await.map_err(|_| Ended)?;
        if self.filter.matches(&line.event) {
            let mut message = sse::Event::default().data(&line.json);
            // A transaction that ended late has a lower id: the stream would resume too early.
            if id > self.after {
                message = message.id(id.to_string());
            }
            self.lines.send(message).await.map_err(|_| Ended)?;
        }
        self.after = self.after.max(id);
        Ok(())
    }
}
