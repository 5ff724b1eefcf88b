//! The largest body of each route.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::body::HttpBody as _;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::EXPECT;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tokio::time::timeout;

use crate::serving::problem::Problem;

/// Refuses a request whose body is larger. A body of unknown length is refused when it is read.
///
/// A client that is still sending when the connection is closed may lose the answer, and would send the body again. So the body is
/// read first, but not longer than `patience`. A client that waits for `100 Continue` has not begun to send it.
pub(crate) async fn with_body_within(limit: usize, patience: Duration, request: Request, next: Next) -> Response {
    let bytes = request.body().size_hint().lower();
    if usize::try_from(bytes).is_ok_and(|bytes| bytes <= limit) {
        return next.run(request).await;
    }
    if !request.headers().contains_key(EXPECT) {
        let mut body = request.into_body();
        let reads =
            async { while let Some(Ok(_)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {} };
        let _ = timeout(patience, reads).await;
    }
    let detail = format!("the body has {bytes} bytes; at most {limit} are allowed here");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "input", detail).into_response()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::convert::Infallible;
    use std::task::{Context, Poll};

    use axum::Router;
    use axum::body::{Body, Bytes, HttpBody};
    use axum::middleware::from_fn;
    use axum::routing::post;
    use hyper::body::{Frame, SizeHint};
    use tower::ServiceExt as _;

    use super::*;

    /// 100 bytes that never come.
    struct Slow;

    impl HttpBody for Slow {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(100)
        }
    }

    #[test]
    fn a_large_body_that_comes_slowly_is_refused_as_too_large() {
        let limited = from_fn(|request: Request, next: Next| with_body_within(99, Duration::ZERO, request, next));
        let router: Router = Router::new().route("/", post(|| async {})).layer(limited);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let request = Request::post("/").body(Body::new(Slow)).unwrap();
        let answer = runtime.block_on(router.oneshot(request)).unwrap();
        assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
    }
}
