//! The largest body of each route.

use std::future::poll_fn;
use std::pin::Pin;

use axum::body::HttpBody as _;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::EXPECT;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::problem::Problem;

/// Refuses a request whose body is larger. A body of unknown length is refused when it is read.
///
/// A client that is still sending when the connection is closed loses the answer, and would send the body again. So the body is read
/// first, within the time limit of requests. A client that waits for `100 Continue` has not begun to send it.
pub(crate) async fn with_body_within(limit: usize, request: Request, next: Next) -> Response {
    let bytes = request.body().size_hint().lower();
    if usize::try_from(bytes).is_ok_and(|bytes| bytes <= limit) {
        return next.run(request).await;
    }
    if !request.headers().contains_key(EXPECT) {
        let mut body = request.into_body();
        while let Some(Ok(_)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {}
    }
    let detail = format!("the body has {bytes} bytes; at most {limit} are allowed here");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "input", detail).into_response()
}
