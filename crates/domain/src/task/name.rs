//! The name of a task, and of a schedule: a line of text for people.

/// The longest name, in characters.
pub const MAX_NAME_LENGTH: usize = 190;

/// Checks that a text may be the name of a task, of a schedule or of a line of a batch.
///
/// # Errors
/// It is empty or too long, has a control character, or has a space at either end.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.chars().count() > MAX_NAME_LENGTH || name.chars().any(char::is_control) {
        return Err(format!("a name must have 1 to {MAX_NAME_LENGTH} characters, none of them a control character"));
    }
    if name.starts_with(' ') || name.ends_with(' ') {
        return Err(format!("the name \"{name}\" begins or ends with a space"));
    }
    Ok(())
}

/// As [`check_name`], for a schedule, whose name stands where an id may stand.
///
/// # Errors
/// As for [`check_name`], or it could be a word of a selection.
pub fn check_schedule_name(name: &str) -> Result<(), String> {
    check_name(name)?;
    if looks_like_selection(name) {
        return Err(format!("the name of a schedule must not look like a selection: \"{name}\""));
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
    fn only_a_schedule_must_not_have_a_name_like_a_selection() {
        for bad in ["5", "3-4", "last", "a=b", "=", "class=mail.*"] {
            let error = format!("the name of a schedule must not look like a selection: \"{bad}\"");
            assert_eq!((check_schedule_name(bad), check_name(bad)), (Err(error), Ok(())));
        }
        for good in ["nightly", "5a", "2026-11-21", "3-", "-4", "lasting", "last week", "data~x"] {
            assert_eq!(check_schedule_name(good), Ok(()), "{good}");
        }
    }
}
