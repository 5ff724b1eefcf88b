//! Messages that handlers and claimants send while they work, for anyone who follows.

use serde::{Deserialize, Serialize};

use super::json::check_storable;

/// The longest name of a message, in characters.
pub const MAX_NAME_CHARS: usize = 100;
/// The longest data of a message, in bytes.
pub const MAX_DATA_BYTES: usize = 64 << 10;

/// What a handler or a claimant said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// What it is called.
    pub name: String,
    /// JSON text.
    pub data: String,
}

/// Checks a message before it is sent or stored.
///
/// # Errors
/// What is wrong with it, as a sentence without a full stop.
pub fn check_message(name: &str, data: &str) -> Result<(), String> {
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || name.chars().any(char::is_control) {
        return Err(format!("the name of a message has 1 to {MAX_NAME_CHARS} characters, none of them invisible"));
    }
    if data.len() > MAX_DATA_BYTES {
        return Err(format!("the data of a message has at most {MAX_DATA_BYTES} bytes"));
    }
    check_storable(data).map_err(|what| format!("the data {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_a_name_and_json_that_every_engine_stores() {
        assert_eq!(check_message("page.done", "{\"page\":3}"), Ok(()));
        let long = "x".repeat(MAX_NAME_CHARS + 1);
        for (name, data) in [("", "1"), ("a\nb", "1"), (&*long, "1"), ("a", "{"), ("a", "\"a\\u0000\"")] {
            assert!(check_message(name, data).is_err(), "{name:?} {data}");
        }
        assert!(check_message("a", &format!("\"{}\"", "x".repeat(MAX_DATA_BYTES))).is_err());
    }
}
