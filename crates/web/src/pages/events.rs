//! `GET /events?task=ID&kind=KINDS&by=NAME&before=ID`: what happened, and who did it, newest first.

use axum::extract::Query;
use maud::{Markup, html};
use serde::Deserialize;

use crate::api::events::EventsQuery;
use crate::app::Caller;
use crate::pages::parts::{answer, text};
use crate::pages::tasks::task::events as event_table;
use crate::pages::{Page, Refresh, page as whole_page};
use crate::serving::address::encoded;
use crate::serving::problem::Problem;
use taskqueue_engine::inspect::events::{EventFilter, KINDS, list};

/// How many events a page lists.
const EVENTS: usize = 200;

/// What the page is asked for; an empty field is no filter.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EventsPageQuery {
    task: String,
    kind: String,
    by: String,
    /// All events have ids below this one.
    before: Option<i64>,
}

impl EventsPageQuery {
    fn filter(&self) -> Result<EventFilter, Problem> {
        let given = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let number =
            |text: String| text.parse().map_err(|_| Problem::input(format!("task: \"{text}\" is not a number")));
        let task = given(&self.task).map(number).transpose()?;
        let filter = EventsQuery { task, run: None, kind: self.kind.clone(), by: given(&self.by) }.filter()?;
        Ok(EventFilter { before: self.before, ..filter })
    }

    /// Returns the address of the events before this one.
    fn older(&self, before: i64) -> String {
        let [task, kind, by] = [&self.task, &self.kind, &self.by].map(|text| encoded(text));
        format!("/events?task={task}&kind={kind}&by={by}&before={before}")
    }
}

pub(crate) async fn page(caller: Caller, Query(query): Query<EventsPageQuery>) -> Page {
    let show =
        |list: &Markup| whole_page("Events", "/events", Some(&caller.login), Refresh::OnChanges, &body(&query, list));
    let filter = match query.filter() {
        Ok(filter) => filter,
        Err(problem) => return Ok(show(&answer(&problem.detail, None, true))),
    };
    let limit = i64::try_from(EVENTS + 1).unwrap_or(i64::MAX);
    let (mut events, now) = caller.call(move |ctx| Ok((list(ctx, &filter, limit)?, ctx.now()?))).await?;
    // The oldest one only shows that there are older ones.
    let has_older = events.len() > EVENTS;
    events.reverse();
    events.truncate(EVENTS);
    let older = events.last().filter(|_| has_older).map(|event| query.older(event.id));
    Ok(show(&html! {
        (event_table(&events, now))
        @if let Some(older) = older { p { a rel="next" href=(older) { "Older events" } } }
    }))
}

fn body(query: &EventsPageQuery, list: &Markup) -> Markup {
    html! {
        h1 { "Events" }
        form.row role="search" action="/events" {
            label for="task" { "Task" }
            input #task name="task" size="8" inputmode="numeric" value=(text(&query.task));
            label for="kind" { "What" }
            input #kind name="kind" size="16" list="kinds" value=(text(&query.kind)) placeholder="failed,cancelled" autocomplete="off";
            datalist #kinds { @for kind in KINDS { option value=(kind) {} } }
            label for="by" { "Who" }
            input #by name="by" size="16" value=(text(&query.by)) placeholder="web:ann";
            button { "Show" }
        }
        (list)
    }
}
