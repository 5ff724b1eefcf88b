//! What an open page listens to: `GET /live`, and `GET /runs/{id}/log` for a log.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::Path;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use tokio::sync::watch::{Receiver, channel};
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt as _};

use crate::app::Caller;
use crate::serving::problem::Problem;
use taskqueue_domain::task::ids::RunId;
use taskqueue_engine::inspect::logs::output_size;

/// How often a stream says that it is alive.
pub(crate) const ALIVE_EVERY: Duration = Duration::from_secs(20);

/// An event `changed` at once, and whenever the figures of the first page have changed.
pub(crate) async fn changes(caller: Caller) -> impl IntoResponse {
    let (version, watching) = caller.app.live.watch();
    events(caller, version, watching)
}

/// An event `changed` at once, whenever there is new output, and when the run has ended.
pub(crate) async fn log_changes(caller: Caller, Path(id): Path<RunId>) -> Result<impl IntoResponse, Problem> {
    // Before the question: so no end is missed.
    let followed = caller.app.logs.follow(id)?;
    let size = caller.call(move |ctx| output_size(ctx, id)).await?;
    let changes = if size.is_final { channel(size).1 } else { followed };
    Ok(events(caller, changes, ()))
}

/// Sends an event for each change, until the token is removed. The first one is sent at once: what changed before the stream began
/// may be newer than the page. What is kept is dropped with the stream.
fn events<T: Clone + Send + Sync + 'static>(
    caller: Caller,
    changes: Receiver<T>,
    kept: impl Send + 'static,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let changes = WatchStream::new(changes).then(move |_| {
        let caller = caller.clone();
        async move { caller.check().await.is_ok() }
    });
    let events = changes.map_while(move |may_read| {
        let _until_the_stream_ends = &kept;
        may_read.then(|| Ok(Event::default().event("changed").data("load the page again")))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE_EVERY))
}
