//! `GET /live`: what an open page listens to.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt as _};

use crate::app::Caller;

/// How often a stream says that it is alive.
pub(crate) const ALIVE_EVERY: Duration = Duration::from_secs(20);

/// An event `changed` whenever the figures of the first page have changed, until the token is removed.
pub(crate) async fn changes(caller: Caller) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let (version, watching) = caller.app.live().watch();
    let changes = WatchStream::from_changes(version)
        .then(move |version| {
            let caller = caller.clone();
            async move { caller.check().await.ok().map(|()| version) }
        })
        .map_while(move |version| {
            let _until_the_stream_ends = &watching;
            Some(Ok(Event::default().event("changed").data(version?.to_string())))
        });
    Sse::new(changes).keep_alive(KeepAlive::new().interval(ALIVE_EVERY))
}
