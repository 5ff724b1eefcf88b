//! What a request gets when it fails: RFC 9457 problem details for programs, a page for people.

use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use taskqueue_domain::text::outside_text::{clean_line, to_clean_json};
use taskqueue_engine::{EngineError, StoreError};

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// The kind of problem, as one word.
    pub(crate) code: &'static str,
    /// What is wrong, as a sentence.
    pub(crate) detail: String,
    /// When to try again.
    retry_after: Option<Duration>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: clean_line(&detail.into()), retry_after: None }
    }

    pub(crate) fn input(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "input", detail)
    }

    /// What the framework refuses, without its words for programmers.
    pub(crate) fn refused(status: StatusCode, code: &'static str, words: &str) -> Self {
        Self::new(status, code, plain_words(words))
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    pub(crate) fn no_login() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "login", "log in, or send the header Authorization: Bearer TOKEN")
    }

    pub(crate) fn too_many(login: &str, retry_after: Duration) -> Self {
        let detail = format!(
            "{login} sends more requests than --rate of taskqueue web allows; wait as long as Retry-After says"
        );
        Self { retry_after: Some(retry_after), ..Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many", detail) }
    }

    pub(crate) fn too_many_open(login: &str) -> Self {
        let detail = format!("{login} has too many requests open at the same time; end a stream or a wait first");
        let retry_after = Some(Duration::ZERO);
        Self { retry_after, ..Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many", detail) }
    }

    pub(crate) fn busy() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "too many requests wait for the database; try again")
    }

    pub(crate) fn silent() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unreachable", "the database does not answer")
    }

    pub(crate) fn failed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", detail)
    }
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        let (status, code) = match &error {
            EngineError::Input(_) | EngineError::UnknownClass { .. } => (StatusCode::BAD_REQUEST, "input"),
            EngineError::ExecIsOff | EngineError::Forbidden(_) => (StatusCode::FORBIDDEN, "forbidden"),
            EngineError::Store(StoreError::NotFound(_)) => (StatusCode::NOT_FOUND, "not-found"),
            EngineError::Store(StoreError::Unreachable { .. }) => (StatusCode::SERVICE_UNAVAILABLE, "unreachable"),
            EngineError::Store(StoreError::Busy(_)) => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            EngineError::Store(StoreError::Full { .. } | StoreError::ReadOnly { .. }) => {
                (StatusCode::INSUFFICIENT_STORAGE, "not-writable")
            }
            EngineError::Store(_) | EngineError::Os { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "failed"),
            _ => (StatusCode::CONFLICT, "refused"),
        };
        Self::new(status, code, without_address(&error))
    }
}

/// What the framework puts before the words of the parser.
const FOR_PROGRAMMERS: [&str; 3] = [
    "Failed to deserialize query string: ",
    "Failed to deserialize form body: ",
    "Failed to deserialize the JSON body into the target type: ",
];

/// Returns what is wrong with an input, without the names of types.
fn plain_words(words: &str) -> String {
    let in_address = words.strip_prefix("Invalid URL: Cannot parse ").and_then(|rest| rest.rsplit_once(" to a "));
    if let Some((value, _)) = in_address {
        return format!("{value} is no id; an id is a whole number");
    }
    FOR_PROGRAMMERS.iter().find_map(|start| words.strip_prefix(start)).unwrap_or(words).to_owned()
}

/// Returns what is wrong. A login sees the tasks, but not where the database is and which user it has there.
fn without_address(error: &EngineError) -> String {
    let EngineError::Store(store) = error else { return error.to_string() };
    let words = match store {
        StoreError::Unreachable { .. } => "cannot be reached",
        StoreError::ReadOnly { .. } => "cannot be written",
        StoreError::Full { .. } => "has no space left",
        StoreError::BadAddress(_)
        | StoreError::NotMigrated { .. }
        | StoreError::Foreign { .. }
        | StoreError::NewerSchema { .. }
        | StoreError::OlderSchema { .. }
        | StoreError::Forbidden { .. }
        | StoreError::Moved { .. } => "cannot be used",
        _ => return error.to_string(),
    };
    format!("the database {words}; `taskqueue doctor` on the host of this server prints why")
}

/// The problem as JSON. The guard makes a page of it for people.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or_default();
        let body = json!({
            "type": format!("urn:taskqueue:problem:{}", self.code), "title": title, "status": self.status.as_u16(),
            "code": self.code, "detail": self.detail,
        });
        let mut response =
            (self.status, [(CONTENT_TYPE, "application/problem+json")], to_clean_json(&body).unwrap_or_default())
                .into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, axum::http::HeaderValue::from_static("Bearer"));
        }
        if let Some(rest) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, (rest.as_secs() + 1).into());
        }
        response.extensions_mut().insert(self);
        response
    }
}
