//! What every request passes before its handler: the name of the host, the origin, the query, the login and its scope; and the
//! headers of every answer.

use std::time::Instant;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, COOKIE, HOST, HeaderName, HeaderValue, ORIGIN};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Redirect, Response};
use tokio_stream::StreamExt as _;

use crate::app::{App, WebOptions};
use crate::logins::login::Login;
use crate::logins::proxy_users::{Peer, is_proxy_key};
use crate::logins::shares::Part;
use crate::pages::problem_page;
use crate::serving::address::{API, encoded};
use crate::serving::encoding::check_query;
use crate::serving::https::Https;
use crate::serving::problem::Problem;
use taskqueue_domain::limits::scope::Scope;
use taskqueue_domain::monitoring::listen_address::ListenAddress;

/// The cookie of a person's login, without TLS and with it.
const COOKIE_NAME: &str = "taskqueue-login";
const SECURE_COOKIE_NAME: &str = "__Host-taskqueue-login";

/// Checks the host, the origin and the query, and sets the headers.
pub(crate) async fn every_request(State(app): State<App>, request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with(API);
    let checked = check_host(&app, request.headers())
        .and_then(|()| check_origin(&app.options, request.method(), request.headers()))
        .and_then(|()| check_query(request.uri()));
    let mut response = match checked {
        Ok(()) => explained(next.run(request).await, is_api).await,
        Err(problem) => refuse(problem, is_api, None),
    };
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    for (name, value) in HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

/// The longest text of a refusal of the router.
const REFUSAL_BYTES: usize = 4 << 10;

/// Turns what the router refuses in plain words (a number that is none, a form without a field) into the problem or the page
/// that every other refusal is.
async fn explained(response: Response, is_api: bool) -> Response {
    let status = response.status();
    let is_plain = response.headers().get(CONTENT_TYPE).is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if !(status.is_client_error() || status.is_server_error()) || !is_plain {
        return response;
    }
    let body = to_bytes(response.into_body(), REFUSAL_BYTES).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&body);
    let words = if text.is_empty() { status.canonical_reason().unwrap_or_default() } else { &text };
    let code = match status {
        StatusCode::NOT_FOUND => "not-found",
        StatusCode::INTERNAL_SERVER_ERROR => "failed",
        StatusCode::SERVICE_UNAVAILABLE => "timeout",
        _ => "input",
    };
    refuse(Problem::refused(status, code, words), is_api, None)
}

/// No inline script or style, nothing from elsewhere, in no frame; no address reaches another site. With `no-referrer` browsers
/// would send `Origin: null` with the forms of this server, too.
const HEADERS: &[(&str, &str)] = &[
    (
        "content-security-policy",
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; \
         base-uri 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// What a route needs of a login.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    pub(crate) may: Scope,
    /// Whether its handler checks the class.
    pub(crate) checks_class: bool,
}

/// Checks the login, its scope, and whether the route is open to it.
pub(crate) async fn with_login(app: App, needs: Needs, mut request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with(API);
    let peer = request.extensions().get::<Peer>().copied();
    let Some(login) = login_of(&app, peer, request.headers()).await else {
        return if is_api { Problem::no_login().into_response() } else { to_login(&request) };
    };
    let checked = check_site_is_named(&login, request.method(), request.headers())
        .and_then(|()| check_needs(&app.options, &login, needs));
    if let Err(problem) = checked {
        return refuse(problem, is_api, Some(&login));
    }
    if let Err(rest) = app.rates.count(&login.name, Instant::now()) {
        return refuse(Problem::too_many(&login.name, rest), is_api, Some(&login));
    }
    let Some(open) = app.open_requests.take(&login.name) else {
        return refuse(Problem::too_many_open(&login.name), is_api, Some(&login));
    };
    request.extensions_mut().insert(login.clone());
    let mut response = next.run(request).await;
    if response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream") {
        response = response.map(|stream| until_it_ends(stream, open));
    }
    match response.extensions_mut().remove::<Problem>() {
        Some(problem) if !is_api => problem_page(&problem, Some(&login)),
        _ => response,
    }
}

/// A stream is open as long as its body.
fn until_it_ends(stream: Body, open: Part<String>) -> Body {
    Body::from_stream(stream.into_data_stream().map(move |part| {
        let _until_the_end = &open;
        part
    }))
}

fn check_needs(options: &WebOptions, login: &Login, Needs { may, checks_class }: Needs) -> Result<(), Problem> {
    if may > Scope::Read && options.is_read_only {
        return Err(Problem::forbidden("this server was started with --read-only"));
    }
    if login.may < may {
        return Err(Problem::forbidden(format!("this needs the scope {may}; {} has {}", login.name, login.may)));
    }
    match &login.classes {
        Some(classes) if !checks_class => Err(Problem::forbidden(format!(
            "{} is limited to the classes {classes}, and this shows or changes others",
            login.name
        ))),
        _ => Ok(()),
    }
}

/// Returns who sends these headers: by `Authorization: Bearer`, by the cookie of the login page, or named by a proxy.
async fn login_of(app: &App, peer: Option<Peer>, headers: &HeaderMap) -> Option<Login> {
    let header = headers.get(AUTHORIZATION).and_then(|value| bearer_token(value.to_str().ok()?));
    let name = cookie_name(&app.options);
    let cookies =
        headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(';'));
    let cookie =
        || cookies.filter_map(|pair| pair.trim().split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value);
    // A proxy may add a token of its own, and the browser keeps the cookie of the person who used it before.
    if let Some(token) = header
        && let Some(login) = app.login(token).await
    {
        return Some(login);
    }
    if let Some(peer) = peer
        && let Some(login) = app.named_login(peer, headers).await
    {
        return Some(login);
    }
    if header.is_some() { None } else { app.login(cookie()?).await }
}

/// Returns the token of this header. The name of the scheme may be written in any case (RFC 9110, 11.1).
fn bearer_token(header: &str) -> Option<&str> {
    header.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token)
}

/// Refuses a change of a person whom a proxy names if [`check_origin`] had nothing to check. The proxy names the person also in
/// requests that a page of another site causes; a cookie would not be sent with them.
fn check_site_is_named(login: &Login, method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    let is_named = headers.contains_key(ORIGIN) || headers.contains_key("sec-fetch-site");
    if is_named || !is_proxy_key(&login.sha256) || matches!(*method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    Err(Problem::forbidden(
        "this request has no header Origin or Sec-Fetch-Site, which would name its page; programs use a token",
    ))
}

/// Without TLS there is no way to set a cookie with the prefix, since it must be `Secure`.
pub(crate) fn cookie_name(options: &WebOptions) -> &'static str {
    if options.https.is_used() { SECURE_COOKIE_NAME } else { COOKIE_NAME }
}

fn to_login(request: &Request) -> Response {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
    let target = if is_get && path != "/" { format!("/login?to={}", encoded(path)) } else { "/login".to_owned() };
    Redirect::to(&target).into_response()
}

fn refuse(problem: Problem, is_api: bool, login: Option<&Login>) -> Response {
    if is_api { problem.into_response() } else { problem_page(&problem, login) }
}

/// Refuses a request that was addressed to another name: a page of another site may let its name point to this address.
fn check_host(app: &App, headers: &HeaderMap) -> Result<(), Problem> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|value| value.to_str().ok()).unwrap_or_default();
    let options = &app.options;
    // A proxy may have checked another one of several.
    if hosts.next().is_none() && is_known_host(options, host) {
        return Ok(());
    }
    let detail = format!(
        "this server does not accept requests for the host name \"{host}\"; `taskqueue web --host NAME` allows a name"
    );
    Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "host", detail))
}

pub(crate) fn is_known_host(options: &WebOptions, host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    let is_own_port = |text: &str| match &options.listen {
        ListenAddress::Internet(address) => address.port().to_string() == text,
        ListenAddress::File(_) => false,
    };
    // Behind a proxy, a browser that uses the port of the server has passed the proxy by.
    let is_port_open = !matches!(options.https, Https::Proxy);
    let is_named = |known: &String| {
        known.eq_ignore_ascii_case(host)
            || is_port_open && known.eq_ignore_ascii_case(name) && port.is_some_and(is_own_port)
    };
    if options.hosts.iter().any(is_named) {
        return true;
    }
    let listens_at = |name: &str| match &options.listen {
        ListenAddress::Internet(address) => name.trim_matches(['[', ']']).parse() == Ok(address.ip()),
        ListenAddress::File(_) => false,
    };
    let is_own =
        ["127.0.0.1", "[::1]", "localhost"].iter().any(|own| name.eq_ignore_ascii_case(own)) || listens_at(name);
    let usual_port = if matches!(options.https, Https::Server(_)) { 443 } else { 80 };
    match &options.listen {
        // Port 0 means any free one, and a proxy has another one.
        ListenAddress::Internet(address) if address.port() != 0 => {
            is_own && port.map_or(address.port() == usual_port, is_own_port)
        }
        _ => is_own,
    }
}

/// Refuses a change that a page of another site asks for.
pub(crate) fn check_origin(options: &WebOptions, method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    if matches!(*method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let site = text(HeaderName::from_static("sec-fetch-site"));
    let is_other_site = site.is_some_and(|site| !matches!(site, "same-origin" | "none"));
    let host = text(HOST).unwrap_or_default();
    // A host that cannot be read is no name, and neither is an empty one.
    let is_own_origin = |origin: &str| {
        origin.split_once("://").is_some_and(|(scheme, name)| {
            let is_safe = scheme == "https" || !options.https.is_used();
            is_safe && !name.is_empty() && name.eq_ignore_ascii_case(host)
        })
    };
    if is_other_site || text(ORIGIN).is_some_and(|origin| !is_own_origin(origin)) {
        return Err(Problem::forbidden("this request comes from a page of another site"));
    }
    Ok(())
}
