//! Text from outside: names, messages and outputs written by anyone who can write to the database or run a handler. One rule
//! governs its display: characters that could move the cursor, control the terminal or reorder text are replaced.

use std::fmt;

use serde::{Serialize, Serializer};

/// Text from outside. `Display` writes one clean line; `Serialize` writes the stored text, which JSON escapes. The type has no
/// other `Display`, so the stored text cannot be formatted into a line, a label or a command by accident.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutsideText(String);

impl OutsideText {
    /// Returns the text as stored: for comparing, storing or passing on as data, never for printing.
    #[must_use]
    pub fn as_stored(&self) -> &str {
        &self.0
    }

    /// Returns true if the text is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the text is displayed as stored.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        !self.0.contains(is_harmful)
    }
}

impl fmt::Display for OutsideText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&clean_line(&self.0))
    }
}

impl Serialize for OutsideText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<T: Into<String>> From<T> for OutsideText {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

/// Returns one line: control and bidirectional characters are replaced, line breaks and tabs become spaces.
#[must_use]
pub fn clean_line(text: &str) -> String {
    text.chars().map(|c| if matches!(c, '\n' | '\t') { ' ' } else { clean_char(c) }).collect()
}

/// Returns the text with its line breaks and tabs; other control and bidirectional characters are replaced.
#[must_use]
pub fn clean_block(text: &str) -> String {
    text.chars().map(|c| if matches!(c, '\n' | '\t') { c } else { clean_char(c) }).collect()
}

/// Returns a value as JSON that is safe to print, as [`clean_json`].
///
/// # Errors
/// The value has no JSON form.
pub fn to_clean_json(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(value).map(|json| clean_json(&json))
}

/// Returns JSON text in which the same characters are escaped, so that a program reads the stored value. Line breaks and tabs, which
/// valid JSON has only between its parts, become spaces.
#[must_use]
pub fn clean_json(json: &str) -> String {
    let mut clean = String::with_capacity(json.len());
    for c in json.chars() {
        if matches!(c, '\n' | '\r' | '\t') {
            clean.push(' ');
        } else if is_harmful(c) {
            clean.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            clean.push(c);
        }
    }
    clean
}

fn clean_char(c: char) -> char {
    if is_harmful(c) { '\u{fffd}' } else { c }
}

fn is_harmful(c: char) -> bool {
    let is_bidi = matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_line_end = matches!(c, '\u{2028}' | '\u{2029}');
    c.is_control() || is_bidi || is_line_end
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_drives_a_terminal_gets_through() {
        let nasty = "a\x1b[31mb\rc\u{9b}d\u{202e}e\x7ff\0g\u{2028}h";
        let clean = clean_line(nasty);
        assert_eq!(clean.chars().filter(|c| *c == '\u{fffd}').count(), 7, "{clean:?}");
        assert!(!clean.chars().any(char::is_control));
        assert_eq!(clean_line("a\nb\tc"), "a b c");
        assert_eq!(clean_block("a\nb\tc\x1b"), "a\nb\tc\u{fffd}");
        let json = serde_json::to_string(nasty).unwrap();
        assert_eq!(serde_json::from_str::<String>(&clean_json(&json)).unwrap(), nasty);
        assert!(!clean_json(&json).chars().any(is_harmful));
        assert_eq!(clean_line("Ünï cödé 漢字"), "Ünï cödé 漢字");
    }

    #[test]
    fn text_from_outside_is_displayed_clean_and_serialized_as_stored() {
        let text = OutsideText::from("a\x1b[2Kb\nc");
        assert_eq!(format!("{text} {text:>9}"), "a\u{fffd}[2Kb c  a\u{fffd}[2Kb c");
        assert_eq!(serde_json::to_string(&text).unwrap(), "\"a\\u001b[2Kb\\nc\"");
        assert!(!text.is_clean() && OutsideText::from("a b").is_clean());
        assert_eq!(text.as_stored(), "a\x1b[2Kb\nc");
    }

    #[test]
    fn json_has_no_characters_that_control_a_terminal_and_keeps_its_value() {
        let text = "a\u{1b}[2J\u{7f}\u{9b}\u{61c}\u{202e}\u{2066}\u{2028}\u{2029}\u{e4}";
        let value = serde_json::json!({ text: [text] });
        let json = to_clean_json(&value).unwrap();
        let escaped = "a\\u001b[2J\\u007f\\u009b\\u061c\\u202e\\u2066\\u2028\\u2029\u{e4}";
        assert_eq!(json, format!("{{\"{escaped}\":[\"{escaped}\"]}}"));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap(), value);
    }
}
