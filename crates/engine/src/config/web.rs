//! `[web.token.NAME]`: who may log in at the web server.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::document::Document;
use taskqueue_domain::limits::scope::Scope;
use taskqueue_domain::task::class_patterns::ClassPatterns;

/// The longest name of a token.
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

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WebTable {
    hide_data: Vec<String>,
    token: BTreeMap<String, TokenTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenTable {
    sha256: String,
    may: String,
    #[serde(default)]
    class: Vec<String>,
}

/// Checks the name of a token, which events show.
///
/// # Errors
/// Returns what is wrong with it.
pub fn check_token_name(name: &str) -> Result<(), String> {
    let is_plain = name.chars().all(|c| c.is_alphanumeric() || "._@-".contains(c));
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || !is_plain {
        return Err(format!("the name of a token has 1 to {MAX_NAME_CHARS} letters, digits and . _ @ -"));
    }
    Ok(())
}

/// Returns the classes that a token of this scope is limited to; `None`: all.
///
/// # Errors
/// Returns what is wrong with a pattern, or that the scope cannot be limited, because it reads or changes tasks of all classes.
pub fn token_classes<P: AsRef<str>>(may: Scope, patterns: &[P]) -> Result<Option<ClassPatterns>, String> {
    if !patterns.is_empty() && !matches!(may, Scope::Queue | Scope::Work) {
        return Err(format!("only tokens of the scopes queue and work can be limited to classes, not those of {may}"));
    }
    ClassPatterns::parse(patterns)
}

/// Returns the classes whose data is hidden; a wrong pattern is noted.
pub(super) fn hidden_data(table: &WebTable, document: &mut Document<'_>) -> Option<ClassPatterns> {
    let parsed = ClassPatterns::parse(&table.hide_data).map_err(|why| format!("hide_data: {why}"));
    document.check(&["web"], parsed)
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
            let message =
                format!("sha256 has {DIGEST_CHARS} hexadecimal digits; `taskqueue web token add NAME` writes it");
            document.note(&place, &message);
        }
        let may = may.parse().map(Some).map_err(|message: String| format!("may: {message}"));
        let Some(may) = document.check(&place, may) else { continue };
        let classes = document.check(&place, token_classes(may, &class));
        tokens.insert(name, WebToken { sha256, may, classes });
    }
    tokens
}
