//! The reason that an operator gives for an action; stored with its event.

/// The longest reason, in characters.
pub const MAX_REASON_CHARS: usize = 1_000;

/// Returns the given reason; `None` if it is absent or empty.
///
/// # Errors
/// It is too long or cannot be stored.
pub fn parse_reason(given: Option<&str>) -> Result<Option<String>, String> {
    let Some(reason) = given.map(str::trim).filter(|reason| !reason.is_empty()) else { return Ok(None) };
    if reason.chars().count() > MAX_REASON_CHARS || reason.contains('\0') {
        return Err(format!("the reason may have at most {MAX_REASON_CHARS} characters and no NUL"));
    }
    Ok(Some(reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_kept_without_the_space_around_it_and_an_empty_one_is_none() {
        assert_eq!(parse_reason(Some(" asked by ann \n")), Ok(Some("asked by ann".to_owned())));
        for none in [None, Some(""), Some(" \t")] {
            assert_eq!(parse_reason(none), Ok(None), "{none:?}");
        }
    }

    #[test]
    fn what_is_too_long_or_has_a_nul_is_refused() {
        assert!(parse_reason(Some(&"é".repeat(MAX_REASON_CHARS))).is_ok());
        for bad in ["x".repeat(MAX_REASON_CHARS + 1), "a\0b".to_owned()] {
            assert!(parse_reason(Some(&bad)).is_err());
        }
    }
}
