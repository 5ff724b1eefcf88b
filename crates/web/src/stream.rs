//! `GET /live`: what an open page listens to.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt as _};

use crate::app::App;

/// How often a stream says that it is alive.
pub(crate) const ALIVE_EVERY: Duration = Duration::from_secs(20);

/// An event `changed` whenever the figures of the first page have changed.
pub(crate) async fn changes(State(app): State<App>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let (version, watching) = app.live().watch();
    let changes = WatchStream::from_changes(version).map(move |version| {
        let _until_the_stream_ends = &watching;
        Ok(Event::default().event("changed").data(version.to_string()))
    });
    Sse::new(changes).keep_alive(KeepAlive::new().interval(ALIVE_EVERY))
}
