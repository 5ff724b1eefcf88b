//! People behind a proxy that knows them: it names each in a header. The header counts only in requests of the proxy itself.

use std::net::IpAddr;
use std::str::from_utf8;

use axum::http::HeaderMap;

/// Who has opened a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A client at this address.
    Address(IpAddr),
    /// A process of the user with this number, at a Unix socket.
    User(u32),
}

/// The proxies that name people, and the header in which they do.
#[derive(Clone, Debug, Default)]
pub struct ProxyUsers {
    /// The name of the header.
    pub header: String,
    /// The proxies.
    pub proxies: Vec<Peer>,
}

impl ProxyUsers {
    /// Returns the key of the login that these headers name. A header that another client sends is ignored, and so is one that a
    /// proxy has added to that of its client instead of replacing it.
    pub(crate) fn named(&self, peer: Peer, headers: &HeaderMap) -> Option<String> {
        if !self.proxies.contains(&peer) {
            return None;
        }
        let mut values = headers.get_all(&self.header).iter();
        let (Some(name), None) = (values.next(), values.next()) else { return None };
        from_utf8(name.as_bytes()).ok().map(proxy_key)
    }
}

/// Returns the key of the login that a proxy names so. It is no digest, so no token has it.
#[must_use]
pub fn proxy_key(name: &str) -> String {
    format!("{KEY_START}{name}")
}

/// Returns true if this is the key of a login that a proxy names.
pub(crate) fn is_proxy_key(key: &str) -> bool {
    key.starts_with(KEY_START)
}

const KEY_START: &str = "proxy:";
