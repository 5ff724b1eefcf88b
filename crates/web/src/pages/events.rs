//! `GET /events`: what happened, and who did it.

use maud::html;

use super::task::events as event_table;
use super::{Page, Refresh, page as whole_page};
use crate::app::Caller;
use taskqueue_engine::inspect::events::{EventFilter, list};

/// How many events are listed.
const EVENTS: i64 = 200;

pub(crate) async fn page(caller: Caller) -> Page {
    let (events, now) = caller.call(|ctx| Ok((list(ctx, &EventFilter::default(), EVENTS)?, ctx.now()?))).await?;
    let body = html! { h1 { "Events" } (event_table(&events, now)) };
    Ok(whole_page("Events", "/events", Some(&caller.login), Refresh::OnChanges, &body))
}
