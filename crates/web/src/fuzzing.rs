//! The guarantees of the parsers of requests, and of the output in a page, as checks that panic. The fuzzers of the command line
//! call them.

#![allow(clippy::expect_used, clippy::missing_panics_doc, reason = "a broken guarantee is a panic")]

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use axum::Form;
use axum::body::Body;
use axum::extract::{FromRequest, Query, Request};
use axum::http::header::{CONTENT_TYPE, HOST, HeaderValue, ORIGIN};
use axum::http::{HeaderMap, Method, Uri};
use chrono::DateTime;
use serde_json::Value;
use taskqueue_domain::limits::limit::Rate;
use taskqueue_domain::limits::pause::PauseScope;
use taskqueue_domain::limits::scope::Scope;
use taskqueue_domain::monitoring::listen_address::ListenAddress;
use taskqueue_domain::task::task_class::check_class_pattern;
use taskqueue_domain::text::json::check_storable;
use taskqueue_domain::time::when;
use taskqueue_engine::claiming::claim::MAX_COUNT;
use taskqueue_engine::inspect::events::KINDS;

use crate::api::{events, tasks as api, worker};
use crate::app::WebOptions;
use crate::logins::login::Login;
use crate::pages::tasks::ansi::coloured;
use crate::pages::tasks::{changes, columns, edit, list, log, selections};
use crate::pages::{login, pauses};
use crate::serving::address::encoded;
use crate::serving::encoding::check_query;
use crate::serving::guard::{check_origin, is_known_host};
use crate::serving::https::Https;

/// The query of an address: what is written into an address is read from it again, and a selection fails with a reason.
pub fn web_query(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let written = format!("/api/v1/tasks?q={}", encoded(&text)).parse::<Uri>().expect("an address");
    let Query(read) = Query::<list::TaskPageQuery>::try_from_uri(&written).expect("a query");
    assert!(read.q == text && check_query(&written) == Ok(()));
    let Ok(given) = format!("/api/v1/tasks?{text}").parse::<Uri>() else { return };
    if let Ok(Query(query)) = Query::<list::TaskPageQuery>::try_from_uri(&given)
        && let Err(problem) = selections::parsed(&query.q)
    {
        assert!(problem.code == "input" && !problem.detail.contains(char::is_control), "{problem:?}");
    }
    if let Ok(Query(query)) = Query::<events::EventsQuery>::try_from_uri(&given)
        && let Ok(filter) = query.filter()
    {
        assert!(filter.kinds.iter().all(|kind| KINDS.contains(&kind.as_str())));
    }
    if let Ok(Query(query)) = Query::<list::TasksQuery>::try_from_uri(&given) {
        match columns::chosen(&query.columns) {
            Ok(chosen) => assert!((1..=columns::COLUMNS.len()).contains(&chosen.len()), "{}", query.columns),
            Err(words) => assert!(words.contains("is not a column"), "{words}"),
        }
    }
    if let Ok(Query(target)) = Query::<pauses::Target>::try_from_uri(&given) {
        let _ = target.scope();
    }
    if let Ok(Query(target)) = Query::<login::Target>::try_from_uri(&given) {
        assert_own_path(&target.to);
    }
    let _ = Query::<log::Which>::try_from_uri(&given);
    let _ = Query::<api::WaitLimit>::try_from_uri(&given);
}

/// The forms of the pages: a field is read as it was written.
pub fn web_form(input: &[u8]) {
    let _ = form::<changes::Selected>(input);
    let _ = form::<changes::Shown>(input);
    let text = String::from_utf8_lossy(input);
    let order = format!("scope=class&name=a&mode=drain&reason={}", encoded(&text));
    let order = form::<pauses::Order>(order.as_bytes()).expect("a form");
    assert_eq!(order.reason, text);
    let _ = form::<pauses::Target>(input).map(|target| target.scope());
    if let Some(sent) = form::<login::LoginForm>(input) {
        assert_own_path(&sent.to);
    }
    let version = "updated_on=2026-11-21T10%3A00%3A00Z&run=0&event=0";
    let edit = format!("{version}&priority=0&due=now&data={}", encoded(&text));
    let edit = form::<edit::EditForm>(edit.as_bytes()).expect("a form");
    assert_eq!(edit.data.as_deref(), Some(&*text));
    for edit in [Some(edit), form::<edit::EditForm>(input)].into_iter().flatten() {
        let _ = when::parse_start(&edit.due, &DateTime::UNIX_EPOCH);
        assert_editable(&edit.data.unwrap_or_default());
    }
    if let Some(order) = form::<pauses::Order>(input)
        && let Ok(request) = order.request(PauseScope::All)
    {
        assert!(!request.reason.trim().is_empty(), "{request:?}");
    }
}

/// After a login, only a path of this server is opened.
fn assert_own_path(to: &str) {
    let path = login::own_path(to);
    assert!(path.starts_with('/') && !path.starts_with("//") && !path.contains(['\\', '\r', '\n']), "{path:?}");
}

/// The form of a task shows data without characters that reorder text, and what it sends is the same JSON.
fn assert_editable(data: &str) {
    let shown = edit::editable_text(data);
    assert!(!shown.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t')), "{shown:?}");
    assert_eq!(edit::editable_text(&shown.replace('\n', "\r\n")), shown);
    if let Ok(value) = serde_json::from_str::<Value>(data) {
        assert_eq!(serde_json::from_str::<Value>(&shown).ok(), Some(value));
    }
}

fn form<T: serde::de::DeserializeOwned>(body: &[u8]) -> Option<T> {
    let request = Request::post("/").header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    let request = request.body(Body::from(body.to_vec())).expect("a request");
    // The body is there, so nothing waits.
    match pin!(Form::<T>::from_request(request, &())).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(form) => form.ok().map(|Form(form)| form),
        Poll::Pending => None,
    }
}

/// The bodies of the interface: a task becomes one line with the same JSON, and only what can be stored or executed is accepted.
pub fn web_body(input: &[u8]) {
    let json = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    if let Ok(line) = api::lines_of(&json, input) {
        assert!(!line.contains(['\n', '\r']), "{line:?}");
        let value = |text: &[u8]| serde_json::from_slice::<Value>(text).ok();
        assert_eq!(value(line.as_bytes()), value(input));
    }
    let (name, sha256) = ("ann".to_owned(), String::new());
    let login = Login { name, may: Scope::Work, sha256, classes: None, is_configured: true };
    if let Ok(claim) = serde_json::from_slice::<worker::Claim>(input)
        && let Ok(request) = worker::request_of(claim, &login)
    {
        assert!((1..=usize::from(MAX_COUNT)).contains(&request.count));
        assert!(request.classes.iter().all(|pattern| check_class_pattern(pattern).is_ok()));
        assert_eq!(request.claimant.to_string(), "ann");
    }
    if let Ok(end) = serde_json::from_slice::<worker::End>(input)
        && let Some(Ok(results)) = end.results.as_deref().map(worker::results_text)
    {
        assert_eq!(check_storable(&results), Ok(()));
    }
    let _ = serde_json::from_slice::<worker::Heartbeat>(input);
    let _ = serde_json::from_slice::<worker::Return>(input);
}

/// The headers `Host` and `Origin`, separated by a NUL: only the names of this server are its own, and a change is refused unless
/// it comes from the same host.
pub fn web_host(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (host, origin) = text.split_once('\0').unwrap_or((&text, "http://localhost:8321"));
    let options = WebOptions {
        listen: "127.0.0.1:8321".parse::<ListenAddress>().expect("an address"),
        hosts: vec!["queue.example.org".to_owned()],
        https: Https::Off,
        is_read_only: false,
        rate: Rate { count: 1, secs: 1 },
    };
    let own = ["localhost:8321", "127.0.0.1:8321", "[::1]:8321", "queue.example.org", "queue.example.org:8321"];
    let is_own = own.iter().any(|name| name.eq_ignore_ascii_case(host));
    // Brackets around an IPv4 address are no other name.
    let name = host.replace(['[', ']'], "");
    assert!(is_known_host(&options, host) == is_own || name == "127.0.0.1:8321", "{host}");
    let (Ok(host_value), Ok(origin_value)) = (HeaderValue::from_str(host), HeaderValue::from_str(origin)) else {
        return;
    };
    let headers = HeaderMap::from_iter([(HOST, host_value), (ORIGIN, origin_value)]);
    if check_origin(&options, &Method::POST, &headers).is_ok() {
        let (_, name) = origin.split_once("://").expect("an origin");
        assert!(name.eq_ignore_ascii_case(host), "{origin} {host}");
    }
}

/// The output of a handler in a page: text with spans of known classes, without any other element.
pub fn web_log(input: &[u8]) {
    let html = coloured(&String::from_utf8_lossy(input)).into_string();
    let (mut rest, mut is_open) = (html.as_str(), false);
    while let Some((before, tag)) = rest.split_once('<') {
        assert_text(before);
        let (tag, after) = tag.split_once('>').expect("the end of a tag");
        if tag == "/span" {
            assert!(std::mem::take(&mut is_open), "{html}");
        } else {
            let class = tag.strip_prefix("span class=\"").and_then(|tag| tag.strip_suffix('"')).expect("a span");
            assert!(!std::mem::replace(&mut is_open, true), "{html}");
            let is_known = |name: &str| matches!(name.as_bytes(), [b'b', b'1'..=b'4'] | [b'c', b'0'..=b'7']);
            assert!(class.split(' ').all(is_known), "{class}");
        }
        rest = after;
    }
    assert_text(rest);
    assert!(!is_open, "{html}");
}

fn assert_text(text: &str) {
    assert!(!text.contains(['>', '"']), "{text:?}");
    let is_entity = |rest: &str| ["amp;", "lt;", "gt;", "quot;"].iter().any(|entity| rest.starts_with(entity));
    assert!(text.split('&').skip(1).all(is_entity), "{text:?}");
    assert!(!text.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t')), "{text:?}");
}
