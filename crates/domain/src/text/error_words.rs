//! Formats an error for a sentence: its code, and its message if it has one.

/// Joins the code and the message of an error, or an event and its error, with a colon; a blank part is omitted. A run ended by a
/// handler or a SQL statement may have only a code, or neither.
#[must_use]
pub fn error_words(code: &str, message: &str) -> String {
    let words: Vec<&str> = [code, message].into_iter().filter(|words| !words.trim().is_empty()).collect();
    words.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_a_message_is_its_code_alone() {
        assert_eq!(error_words("smtp", "451 greylisted"), "smtp: 451 greylisted");
        for blank in ["", " ", "\n"] {
            assert_eq!(error_words("smtp", blank), "smtp", "{blank:?}");
        }
        assert_eq!(error_words("", "451 greylisted"), "451 greylisted");
        assert_eq!(error_words("", ""), "");
    }
}
