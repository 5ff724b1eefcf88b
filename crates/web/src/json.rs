//! JSON of requests and answers. Every answer in JSON is written here, with the escapes of `--json`, so that no route can send
//! text that controls the terminal of a client.

use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::problem::Problem;
use taskqueue_domain::text::outside_text::clean_json;

/// An answer in JSON.
pub(crate) struct JsonAnswer<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for JsonAnswer<T> {
    fn into_response(self) -> Response {
        match json_text(&self.0) {
            Ok(text) => ([(CONTENT_TYPE, "application/json")], text).into_response(),
            Err(error) => Problem::failed(error.to_string()).into_response(),
        }
    }
}

/// Returns a value as JSON that is safe to print: control and bidirectional characters and line separators are escaped.
///
/// # Errors
/// The value has no JSON form.
pub(crate) fn json_text(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(value).map(|text| clean_json(&text))
}

/// The body of a request in JSON.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let body = axum::Json::from_request(request, state).await;
        body.map(|axum::Json(value)| Self(value))
            .map_err(|refused| Problem::new(refused.status(), "input", refused.body_text()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_no_characters_that_control_a_terminal_and_keeps_its_value() {
        let text = "a\u{1b}[2J\u{7f}\u{9b}\u{61c}\u{202e}\u{2066}\u{2028}\u{2029}\u{e4}";
        let value = serde_json::json!({ text: [text] });
        let json = json_text(&value).unwrap();
        let escaped = "a\\u001b[2J\\u007f\\u009b\\u061c\\u202e\\u2066\\u2028\\u2029\u{e4}";
        assert_eq!(json, format!("{{\"{escaped}\":[\"{escaped}\"]}}"));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap(), value);
    }
}
