//! How an error is written in a sentence: its code, and its message if it has one.

/// Joins the code and the message of an error by a colon, or what happened and its error; a blank one is left out. A run
/// that a handler or a SQL statement ended may have a code alone, or neither.
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
