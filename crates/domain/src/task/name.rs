//! The name of a task, and of a schedule: a line of text for people.

/// The longest name, in characters.
pub const MAX_NAME_LENGTH: usize = 190;

/// Checks that a text may be the name of a task, of a schedule or of a line of a batch.
///
/// # Errors
/// It is empty or too long, has a control character, has a space at either end, or could be a word of a selection.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.chars().count() > MAX_NAME_LENGTH || name.chars().any(char::is_control) {
        return Err(format!("a name has 1 to {MAX_NAME_LENGTH} characters, none of them a control character"));
    }
    if name.starts_with(' ') || name.ends_with(' ') {
        return Err(format!("the name \"{name}\" begins or ends with a space"));
    }
    if looks_like_selection(name) {
        return Err(format!("a name must not look like a selection: \"{name}\""));
    }
    Ok(())
}

/// Returns whether a command would read the name as an id, a range, `last` or a filter.
fn looks_like_selection(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_range = name.split_once('-').is_some_and(|(first, last)| is_number(first) && is_number(last));
    is_number(name) || is_range || name == "last" || name.contains('=')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_looks_like_a_selection_is_refused() {
        for bad in ["5", "3-4", "last", "a=b", "=", "class=mail.*"] {
            let error = format!("a name must not look like a selection: \"{bad}\"");
            assert_eq!(check_name(bad), Err(error));
        }
        for good in ["nightly", "5a", "2026-11-21", "3-", "-4", "lasting", "last week", "data~x"] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
    }
}
