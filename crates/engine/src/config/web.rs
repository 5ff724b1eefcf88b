//! `[web]`: who may log in at the web server, by a token or named by a proxy, and what it hides.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;

use super::checks::check_user;
use super::document::Document;
use taskqueue_domain::limits::scope::Scope;
use taskqueue_domain::task::choosing::class_patterns::ClassPatterns;

/// The longest name of a login.
const MAX_NAME_CHARS: usize = 60;
/// The hexadecimal digits of a SHA-256.
const DIGEST_CHARS: usize = 64;

/// A login of the web server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebToken {
    /// The SHA-256 of the token, in hexadecimal digits.
    pub sha256: String,
    /// What it may do.
    pub may: Scope,
    /// The classes that it is limited to; `None`: all.
    pub classes: Option<ClassPatterns>,
}

/// People whom a proxy names in a header of each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebUsers {
    /// The name of the header.
    pub header: String,
    /// The proxies whose header counts.
    pub proxies: Vec<TrustedProxy>,
    /// The people, by name.
    pub by_name: BTreeMap<String, WebUser>,
}

/// A proxy, as the server sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustedProxy {
    /// The address from which it connects.
    Address(IpAddr),
    /// The user as whom its process runs, which connects to a Unix socket.
    User(String),
}

/// What a person whom a proxy names may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebUser {
    /// The scope.
    pub may: Scope,
    /// The classes that the login is limited to; `None`: all.
    pub classes: Option<ClassPatterns>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WebTable {
    hide_data: Vec<String>,
    user_header: Option<String>,
    trusted_proxies: Vec<String>,
    token: BTreeMap<String, TokenTable>,
    user: BTreeMap<String, UserTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenTable {
    sha256: String,
    may: String,
    #[serde(default)]
    class: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserTable {
    may: String,
    #[serde(default)]
    class: Vec<String>,
}

/// Checks the name of a login, which events show.
///
/// # Errors
/// Returns what is wrong with it.
pub fn check_token_name(name: &str) -> Result<(), String> {
    let is_plain = name.chars().all(|c| c.is_alphanumeric() || "._@-".contains(c));
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || !is_plain {
        return Err(format!("the name of a login must have 1 to {MAX_NAME_CHARS} letters, digits and . _ @ -"));
    }
    Ok(())
}

/// Returns the classes that a login of this scope is limited to; `None`: all.
///
/// # Errors
/// Returns what is wrong with a pattern, or that the scope cannot be limited, because it reads or changes tasks of all classes.
pub fn token_classes<P: AsRef<str>>(may: Scope, patterns: &[P]) -> Result<Option<ClassPatterns>, String> {
    if !patterns.is_empty() && !matches!(may, Scope::Queue | Scope::Work) {
        return Err(format!("only logins of the scopes queue and work can be limited to classes, not those of {may}"));
    }
    ClassPatterns::parse(patterns)
}

/// Returns the classes whose data is hidden; a wrong pattern is noted.
pub(super) fn hidden_data(table: &WebTable, document: &mut Document<'_>) -> Option<ClassPatterns> {
    let parsed = ClassPatterns::parse(&table.hide_data).map_err(|why| format!("hide_data: {why}"));
    document.check(&["web"], parsed)
}

/// Returns the people whom a proxy names, if it does; what is wrong is noted.
pub(super) fn web_users(table: &WebTable, document: &mut Document<'_>) -> Option<WebUsers> {
    let WebTable { user_header, trusted_proxies, user, token, .. } = table;
    let Some(header) = user_header else {
        if !trusted_proxies.is_empty() || !user.is_empty() {
            let message =
                "user_header is missing: the header in which the proxy names the user, such as \"X-Forwarded-User\"";
            document.note(&["web"], message);
        }
        return None;
    };
    if header.is_empty() || !header.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        document.note(&["web"], &format!("user_header: {header:?} is not the name of a header"));
    }
    if trusted_proxies.is_empty() {
        let message = "user_header needs trusted_proxies: any client could send the header. List where the proxy connects from, \
                       such as trusted_proxies = [\"127.0.0.1\"] or [\"unix:www-data\"]";
        document.note(&["web"], message);
    }
    let proxies = trusted_proxies.iter().map(|text| trusted_proxy(text)).collect::<Result<_, _>>();
    let proxies = document.check(&["web"], proxies);
    let mut by_name = BTreeMap::new();
    for (name, UserTable { may, class }) in user {
        let place = ["web", "user", name];
        let is_token = token.contains_key(name);
        let other_name = || format!("{name} has a token, too: events and limits could not tell the two logins apart");
        document.check(&place, if is_token { Err(other_name()) } else { check_token_name(name) });
        let Some((may, classes)) = rights(&place, may, class, document) else { continue };
        by_name.insert(name.clone(), WebUser { may, classes });
    }
    Some(WebUsers { header: header.clone(), proxies, by_name })
}

fn trusted_proxy(text: &str) -> Result<TrustedProxy, String> {
    if let Some(user) = text.strip_prefix("unix:") {
        check_user(Some(user)).map_err(|why| format!("trusted_proxies: {why}"))?;
        return Ok(TrustedProxy::User(user.to_owned()));
    }
    let address = text.parse::<IpAddr>().map_err(|_| {
        format!("trusted_proxies: {text:?} is neither an address such as 127.0.0.1 nor a user of this host such as unix:www-data")
    });
    address.map(|address| TrustedProxy::Address(address.to_canonical()))
}

/// Returns the scope of a login and the classes that it is limited to; what is wrong is noted.
fn rights(
    place: &[&str],
    may: &str,
    class: &[String],
    document: &mut Document<'_>,
) -> Option<(Scope, Option<ClassPatterns>)> {
    let may = may.parse().map(Some).map_err(|message: String| format!("may: {message}"));
    let may = document.check(place, may)?;
    Some((may, document.check(place, token_classes(may, class))))
}

/// Returns the tokens; what is wrong with one is noted.
pub(super) fn web_tokens(table: WebTable, document: &mut Document<'_>) -> BTreeMap<String, WebToken> {
    let mut tokens = BTreeMap::new();
    for (name, TokenTable { sha256, may, class }) in table.token {
        let place = ["web", "token", &name];
        let is_digest =
            sha256.len() == DIGEST_CHARS && sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        document.check(&place, check_token_name(&name));
        if !is_digest {
            let message = format!(
                "sha256 must have {DIGEST_CHARS} hexadecimal digits; `taskqueue web token add NAME --may SCOPE` writes it"
            );
            document.note(&place, &message);
        }
        let Some((may, classes)) = rights(&place, &may, &class, document) else { continue };
        tokens.insert(name, WebToken { sha256, may, classes });
    }
    tokens
}
