//! Scripts that a command line passes to an interpreter.

use std::io;
use std::path::{Path, PathBuf};

/// Names of interpreters whose first argument is a script. A version may follow the name, as in `python3.11`.
const INTERPRETERS: &[&str] = &[
    "sh", "bash", "dash", "ksh", "zsh", "php", "python", "pypy", "perl", "ruby", "node", "nodejs", "deno", "bun",
    "lua", "Rscript",
];

/// Endings of the names of scripts.
const SCRIPT_ENDINGS: &[&str] = &["sh", "bash", "php", "py", "pl", "rb", "js", "mjs", "cjs", "ts", "lua", "R"];

/// Returns the first argument of a command line if it is the absolute path of a script that does not exist. The program can be
/// started, but it ends with an error.
#[must_use]
pub fn missing_script(argv: &[String]) -> Option<PathBuf> {
    let [program, script, ..] = argv else { return None };
    let path = Path::new(script);
    let is_script = path.is_absolute() && (is_interpreter(program) || has_script_ending(path));
    if !is_script {
        return None;
    }
    // Any other error, such as a directory that may not be read, says nothing about the script.
    let error = std::fs::metadata(path).err()?;
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory).then(|| path.to_owned())
}

fn is_interpreter(program: &str) -> bool {
    let name = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    INTERPRETERS.contains(&name)
}

fn has_script_ending(path: &Path) -> bool {
    path.extension().and_then(|ending| ending.to_str()).is_some_and(|ending| SCRIPT_ENDINGS.contains(&ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(argv: &[&str]) -> bool {
        let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
        missing_script(&argv).is_some()
    }

    #[test]
    fn a_missing_script_is_found_by_its_interpreter_or_its_name() {
        assert!(missing(&["/usr/bin/php", "/srv/none/a"]) && missing(&["/usr/bin/python3.11", "/srv/none/a"]));
        assert!(missing(&["/opt/run", "/srv/none/a.rb"]) && missing(&["/bin/sh", "/etc/passwd/a"]));
        assert!(!missing(&["/usr/bin/php"]) && !missing(&["/usr/bin/php", "-r", "/srv/none/a.php"]));
        assert!(!missing(&["/bin/sh", "none.sh"]) && !missing(&["/bin/cp", "/srv/none/a"]));
        assert!(!missing(&["/bin/sh", "/etc/passwd"]));
    }
}
