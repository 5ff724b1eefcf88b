//! Takes from text what could move the cursor, change the terminal or turn the order of characters: names, messages and
//! outputs come from whoever can write into the database.

/// One line: every control and bidirectional character is replaced, line breaks and tabs become spaces.
pub(crate) fn clean_line(text: &str) -> String {
    text.chars().map(|c| if matches!(c, '\n' | '\t') { ' ' } else { clean_char(c) }).collect()
}

/// Several lines: line breaks and tabs stay.
pub(crate) fn clean_block(text: &str) -> String {
    text.chars().map(|c| if matches!(c, '\n' | '\t') { c } else { clean_char(c) }).collect()
}

/// JSON text: the same characters as escapes, so that a program still reads what is stored. They can stand only in
/// strings.
pub(crate) fn clean_json(json: &str) -> String {
    let mut clean = String::with_capacity(json.len());
    for c in json.chars() {
        if is_harmful(c) {
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
}
