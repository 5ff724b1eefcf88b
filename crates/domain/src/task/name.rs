//! The name of a task, and of a schedule: a line of text for people.

/// The longest name, in characters.
pub const MAX_NAME_LENGTH: usize = 190;

/// Checks that a text may be the name of a task, of a schedule or of a line of a batch.
///
/// # Errors
/// It is empty or too long, has a control character, or has a space at either end.
pub fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.chars().count() > MAX_NAME_LENGTH || name.chars().any(char::is_control) {
        return Err(format!("a name has 1 to {MAX_NAME_LENGTH} characters, none of them a control character"));
    }
    if name.starts_with(' ') || name.ends_with(' ') {
        return Err(format!("the name \"{name}\" begins or ends with a space"));
    }
    Ok(())
}
