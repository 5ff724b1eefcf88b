//! Logins, by their tokens or named by a proxy.

use std::collections::HashMap;
use std::io;

use sha2::{Digest as _, Sha256};

use taskqueue_domain::limits::scope::Scope;
use taskqueue_domain::task::choosing::class_patterns::ClassPatterns;
use taskqueue_host::random::tokens;

/// A person or a program that has proved who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The name in the events.
    pub name: String,
    /// What it may do.
    pub may: Scope,
    /// The digest of its token, or what [`crate::proxy_key`] returns if a proxy names the login.
    pub sha256: String,
    /// The classes that it is limited to; `None`: all. A limited login can use only the routes that check the class.
    pub classes: Option<ClassPatterns>,
    /// Whether the configuration contains its token, whose uses are noted.
    pub is_configured: bool,
}

/// All logins, each under the digest of its token or its other key.
#[derive(Clone, Debug, Default)]
pub struct Logins(HashMap<String, Login>);

impl Logins {
    /// Adds a login, or replaces the one with the same token.
    pub fn add(&mut self, login: Login) {
        self.0.insert(login.sha256.clone(), login);
    }

    /// Returns true if no login is possible.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the digests of the logins that are not in `later`.
    pub(crate) fn missing_in<'a>(&'a self, later: &'a Self) -> impl Iterator<Item = &'a str> {
        self.0.keys().filter(|sha256| !later.0.contains_key(*sha256)).map(String::as_str)
    }

    /// Returns the login whose token has this digest.
    #[must_use]
    pub fn find(&self, sha256: &str) -> Option<&Login> {
        self.0.get(sha256)
    }
}

/// Returns a new token: 256 random bits.
///
/// # Errors
/// The kernel has no random numbers yet, early at boot.
pub fn new_token() -> io::Result<String> {
    Ok(tokens(2)?.concat())
}

/// Returns the SHA-256 of a token in hexadecimal digits. A token has 256 random bits, so its digest does not help to guess it,
/// and a slow hash would only slow down every request.
#[must_use]
pub fn digest(token: &str) -> String {
    Sha256::digest(token.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_found_by_its_token_and_by_nothing_else() {
        let mut logins = Logins::default();
        assert!(logins.is_empty());
        let (name, sha256) = ("ann".to_owned(), digest("secret"));
        let login = Login { name, may: Scope::Operate, sha256, classes: None, is_configured: true };
        logins.add(login.clone());
        assert_eq!(logins.find(&digest("secret")), Some(&login));
        assert_eq!(logins.find("secret"), None);
        assert_eq!(logins.find(""), None);
    }
}
