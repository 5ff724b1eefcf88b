//! JSON of requests and answers. Every answer in JSON is written here, with the escapes of `--json`, so that no route can send
//! text that controls the terminal of a client.

use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::serving::problem::Problem;
use taskqueue_domain::text::outside_text::to_clean_json;

/// An answer in JSON.
pub(crate) struct JsonAnswer<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for JsonAnswer<T> {
    fn into_response(self) -> Response {
        match to_clean_json(&self.0) {
            Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
            Err(error) => Problem::failed(error.to_string()).into_response(),
        }
    }
}

/// The body of a request in JSON.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let body = axum::Json::from_request(request, state).await;
        body.map(|axum::Json(value)| Self(value))
            .map_err(|refused| Problem::refused(refused.status(), "input", &refused.body_text()))
    }
}
