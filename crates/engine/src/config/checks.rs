//! Checks for values anywhere in the configuration: numbers, command lines, user names. Each message states what is wrong; the
//! caller adds where.

use std::path::Path;

use super::class_argument::check_class_arguments;

/// The largest limit in bytes.
pub(super) const MAX_LIMIT_BYTES: i64 = 1 << 50;

pub(super) fn in_range(key: &str, value: Option<i64>, low: i64, high: i64) -> Result<Option<i64>, String> {
    match value {
        Some(value) if !(low..=high).contains(&value) => Err(format!("{key} is {value}; it must be {low} to {high}")),
        _ => Ok(value),
    }
}

pub(super) fn check_user(user: Option<&str>) -> Result<(), String> {
    match user {
        Some(user) if user.is_empty() || user.contains(['\0', ':', '\n']) => {
            Err(format!("{user:?} is not the name of a user"))
        }
        _ => Ok(()),
    }
}

/// The variables that a handler needs to call `taskqueue`. A class may set these; the runner sets all others with this prefix.
const VARIABLES_FOR_HANDLERS: [&str; 2] = ["TASKQUEUE_CONFIG", "TASKQUEUE_DATABASE_URL"];

pub(super) fn check_variables<'a>(names: impl IntoIterator<Item = &'a String>) -> Result<(), String> {
    for name in names {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(format!("\"{name}\" is not the name of a variable"));
        }
        if name.starts_with("TASKQUEUE_") && !VARIABLES_FOR_HANDLERS.contains(&name.as_str()) {
            return Err(format!(
                "the variable {name} cannot be set here: of the variables that begin with TASKQUEUE_, a class can set only \
                 {}; the runner sets the others",
                VARIABLES_FOR_HANDLERS.join(" and ")
            ));
        }
    }
    Ok(())
}

pub(super) fn check_argv(argv: &[String]) -> Result<(), String> {
    let Some(program) = argv.first() else { return Err("argv is empty; its first element is the program".to_owned()) };
    if !Path::new(program).is_absolute() {
        return Err(format!("the program \"{program}\" needs an absolute path, because cron uses another PATH"));
    }
    if program.contains("{class}") {
        return Err(
            "{class} is allowed in the arguments, not in the program: users who queue must not choose the program"
                .to_owned(),
        );
    }
    if argv.iter().any(|element| element.contains('\0')) {
        return Err("argv contains a NUL".to_owned());
    }
    check_class_arguments(argv)
}
