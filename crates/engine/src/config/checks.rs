//! Checks for values anywhere in the configuration: numbers, command lines, user names. Each message states what is wrong; the
//! caller adds where.

use std::path::Path;

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
        return Err(format!("the program \"{program}\" has no absolute path; cron uses another PATH"));
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
    if scripts(argv).any(|script| script.contains("{class}")) {
        return Err("{class} is in a script, where a shell would interpret it; write \"$TASKQUEUE_CLASS\" there, or \
                    pass {class} as an argument after the script"
            .to_owned());
    }
    Ok(())
}

/// Returns the arguments that a shell would interpret: those after `-c` of a shell, also if another program starts it.
fn scripts(argv: &[String]) -> impl Iterator<Item = &str> {
    const SHELLS: &[&str] = &["sh", "ash", "bash", "dash", "ksh", "mksh", "yash", "zsh", "fish", "csh", "tcsh", "su"];
    let is_shell = |element: &&String| {
        Path::new(element).file_name().is_some_and(|name| SHELLS.iter().any(|shell| name == *shell))
    };
    let takes_script = |option: &str| {
        let letters = option.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
        option == "--command" || letters.is_some_and(|letters| letters.contains('c'))
    };
    let after_shell = argv.iter().skip_while(move |element| !is_shell(element));
    let options = after_shell.clone().skip(1);
    let pairs = options.clone().zip(options.skip(1)).filter(move |(option, _)| takes_script(option));
    let attached = after_shell.filter_map(|element| element.strip_prefix("--command="));
    pairs.map(|(_, script)| script.as_str()).chain(attached)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(argv: &[&str]) -> Result<(), String> {
        check_argv(&argv.iter().map(|element| (*element).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_class_is_no_part_of_a_script() {
        for argv in [
            &["/bin/sh", "-c", "echo {class}"][..],
            &["/bin/bash", "-euc", "echo {class}"],
            &["/bin/bash", "-e", "-u", "-c", "run {class}"],
            &["/usr/bin/env", "X=1", "dash", "-c", "echo {class}"],
            &["/bin/su", "bot", "-c", "run {class}"],
            &["/bin/su", "bot", "--command=run {class}"],
        ] {
            let error = check(argv).unwrap_err();
            assert!(error.contains("$TASKQUEUE_CLASS"), "{argv:?}: {error}");
        }
        for argv in [
            &["/bin/sh", "-c", "echo \"$1\"", "sh", "{class}"][..],
            &["/bin/sh", "/srv/run.sh", "{class}"],
            &["/usr/bin/php", "-c", "/etc/php.ini", "/srv/run.php", "{class}"],
            &["/usr/bin/php", "/srv/run.php", "-c", "{class}"],
        ] {
            assert_eq!(check(argv), Ok(()), "{argv:?}");
        }
    }
}
