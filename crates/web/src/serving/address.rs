//! Addresses of this server.

/// The paths of programs; all others are pages.
pub(crate) const API: &str = "/api/";

/// Encodes a text for the query of an address.
pub(crate) fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
