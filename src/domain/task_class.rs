//! The name of a task class, validated.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// The name that says who handles a task: 1 to 190 of the characters `A-Z a-z 0-9 _ . \ : -`, so that it can stand in
/// an argument, a file name and a log line without being mistaken for anything else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TaskClass(String);

/// The longest class name, in characters: what an index of every engine can hold.
pub const MAX_CLASS_LENGTH: usize = 190;

/// The built-in class whose tasks name the program themselves.
pub const EXEC_CLASS: &str = "exec";

impl TaskClass {
    /// The name.
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
        Ok(Self(text.to_owned()))
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
        for name in ["", "-rf", "a b", "a/b", "a\n", "mäil", "a;b", "$(x)", "a\0", &long] {
            assert!(name.parse::<TaskClass>().is_err(), "{name:?}");
        }
    }
}
