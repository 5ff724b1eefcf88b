//! The name of a task class, validated.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::run::status::Stored;

/// The name that determines who handles a task: 1 to 190 of the characters `A-Z a-z 0-9 _ . \ : -`. It is safe in an
/// argument, a file name and a log line. `..` is not allowed, because `\` and `:` are often turned into path separators. The
/// tables enforce the same rule with a CHECK.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TaskClass(String);

/// The longest class name, in characters: what an index of every engine can hold.
pub const MAX_CLASS_LENGTH: usize = 190;

/// The built-in class whose tasks name the program.
pub const EXEC_CLASS: &str = "exec";

/// Checks the name of a class, or a pattern of names with `*` and `?` used by claims.
///
/// # Errors
/// Why no class can have this name, or match this pattern.
pub fn check_class_pattern(pattern: &str) -> Result<(), String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "_.\\:-*?".contains(c);
    if let Some(bad) = pattern.chars().find(|c| !is_good(*c)) {
        return Err(format!("a class name cannot contain {bad:?}"));
    }
    // A name without wildcards matches only itself, so it must be one that a task can have.
    if !pattern.contains(['*', '?']) {
        return pattern.parse::<TaskClass>().map(drop);
    }
    if pattern.len() > MAX_CLASS_LENGTH {
        return Err(format!("the pattern is longer than {MAX_CLASS_LENGTH} characters"));
    }
    if pattern.starts_with('-') {
        return Err("a class name cannot start with a hyphen".to_owned());
    }
    if pattern.contains("..") {
        return Err("a class name cannot contain two dots in a row".to_owned());
    }
    Ok(())
}

impl TaskClass {
    /// Returns the pseudo-class for a configured program that is not a handler.
    #[must_use]
    pub fn of_hooks() -> Self {
        Self("hook".to_owned())
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TaskClass {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err("the task class is empty".to_owned());
        }
        if text.len() > MAX_CLASS_LENGTH {
            return Err(format!("the task class is longer than {MAX_CLASS_LENGTH} characters"));
        }
        if let Some(bad) = text.chars().find(|c| !(c.is_ascii_alphanumeric() || "_.\\:-".contains(*c))) {
            return Err(format!(
                "the task class has the character {bad:?}; allowed are letters, digits and _ . \\ : -"
            ));
        }
        if text.starts_with('-') {
            return Err("the task class starts with a hyphen and could be taken for an option".to_owned());
        }
        if text.contains("..") {
            return Err("the task class has two dots in a row and could be taken for a path".to_owned());
        }
        Ok(Self(text.to_owned()))
    }
}

impl PartialEq<str> for TaskClass {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl Deref for TaskClass {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Stored<TaskClass> {
    /// Returns the name as stored, valid or not.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(class) => class,
            Self::Unknown(text) => text,
        }
    }
}

impl From<String> for Stored<TaskClass> {
    fn from(text: String) -> Self {
        text.parse().map_or(Self::Unknown(text), Self::Known)
    }
}

impl fmt::Display for Stored<TaskClass> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Stored<TaskClass> {
    fn serialize<Out: Serializer>(&self, out: Out) -> Result<Out::Ok, Out::Error> {
        out.serialize_str(self.as_str())
    }
}

impl fmt::Display for TaskClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_programs_modules_and_php_classes_are_allowed() {
        for name in ["mail.send", "App\\Tasks\\Resize", "db:backup", "a", "x-1_y"] {
            assert!(name.parse::<TaskClass>().is_ok(), "{name}");
        }
    }

    #[test]
    fn what_could_be_mistaken_for_something_else_is_refused() {
        let long = "x".repeat(191);
        for name in ["", "-rf", "a b", "a/b", "a\n", "mäil", "a;b", "$(x)", "a\0", "a..b", "App\\..\\x", &long] {
            assert!(name.parse::<TaskClass>().is_err(), "{name:?}");
            assert!(check_class_pattern(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_pattern_may_also_contain_wildcards() {
        for pattern in ["mail.send", "mail.*", "*", "?", "App\\*", "*-", "a.*.", "?*.?"] {
            assert_eq!(check_class_pattern(pattern), Ok(()), "{pattern}");
        }
        let long = "*".repeat(191);
        for (pattern, why) in
            [("-*", "a hyphen"), ("-?", "a hyphen"), ("a..*", "two dots"), ("*..", "two dots"), (&long, "longer")]
        {
            assert!(check_class_pattern(pattern).unwrap_err().contains(why), "{pattern}");
        }
    }
}
