//! The check of printed text.

use super::text;
use crate::output::clean::{clean_block, clean_json, clean_line};

/// Cleaned text has no control sequences and no change of direction; JSON keeps its meaning.
pub fn clean(input: &[u8]) {
    let lossy = String::from_utf8_lossy(input);
    assert!(!clean_line(&lossy).contains(drives_terminal));
    assert!(!clean_block(&lossy).contains(|c| !matches!(c, '\n' | '\t') && drives_terminal(c)));
    assert_eq!(clean_line(&lossy).chars().count(), lossy.chars().count());
    let json = serde_json::json!({ "text": lossy, lossy.to_string(): [1, text(input)] });
    let clean = clean_json(&json.to_string());
    assert!(!clean.contains(drives_terminal));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&clean).ok(), Some(json));
}

/// Returns true for control characters, line breaks beyond ASCII, and characters with the property Bidi_Control.
fn drives_terminal(c: char) -> bool {
    let bidi_control = ['\u{61c}', '\u{200e}', '\u{200f}'];
    matches!(u32::from(c), 0..=0x1f | 0x7f..=0x9f | 0x2028..=0x202e | 0x2066..=0x2069) || bidi_control.contains(&c)
}
