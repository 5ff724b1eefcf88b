//! What is checked of values wherever they stand in the configuration: numbers, command lines, names of users. Each message says what
//! is wrong, and leaves the place to whoever reads it.

use std::path::Path;

/// The most bytes that a limit can be.
pub(super) const MAX_LIMIT_BYTES: i64 = 1 << 50;

pub(super) fn in_range(key: &str, value: Option<i64>, low: i64, high: i64) -> Result<Option<i64>, String> {
    match value {
        Some(value) if !(low..=high).contains(&value) => {
            Err(format!("{key} is {value}; it must lie in {low} to {high}"))
        }
        _ => Ok(value),
    }
}

pub(super) fn check_user(user: Option<&str>) -> Result<(), String> {
    match user {
        Some(user) if user.is_empty() || user.contains(['\0', ':', '\n']) => {
            Err(format!("{user:?} is no name of a user"))
        }
        _ => Ok(()),
    }
}

pub(super) fn check_argv(argv: &[String]) -> Result<(), String> {
    let Some(program) = argv.first() else { return Err("argv is empty; its first element is the program".to_owned()) };
    if !Path::new(program).is_absolute() {
        return Err(format!("the program \"{program}\" has no absolute path; cron's PATH is not yours"));
    }
    if program.contains("{class}") {
        return Err(
            "{class} may stand in the arguments, not in the program: who can queue must not choose it".to_owned()
        );
    }
    if argv.iter().any(|element| element.contains('\0')) {
        return Err("argv contains a NUL".to_owned());
    }
    Ok(())
}
