//! `[web.token.NAME]`: who may log in at the web server.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::document::Document;
use taskqueue_domain::limits::scope::Scope;

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
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WebTable {
    #[serde(default)]
    token: BTreeMap<String, TokenTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenTable {
    sha256: String,
    may: String,
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

/// Returns the tokens; what is wrong with one is noted.
pub(super) fn web_tokens(table: WebTable, document: &mut Document<'_>) -> BTreeMap<String, WebToken> {
    let mut tokens = BTreeMap::new();
    for (name, TokenTable { sha256, may }) in table.token {
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
        if let Some(may) = document.check(&place, may) {
            tokens.insert(name, WebToken { sha256, may });
        }
    }
    tokens
}
