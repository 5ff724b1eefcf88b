//! Unique tasks: of the live tasks of a class at most one has a key. The database enforces it, by an index over the
//! generated column LiveUniqueKey; a test of the store holds that and [`Task::has_its_key`](super::records::Task) together.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use super::ids::TaskId;

/// The longest key, in characters: what an index of every engine can hold.
pub const MAX_KEY_LENGTH: usize = 190;

/// What becomes of a new task whose key is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// The task that is there is what was wanted.
    #[default]
    Return,
    /// The task that is there gets the data, times and numbers of the new one, unless it is being processed.
    Replace,
    /// An error.
    Fail,
}

impl OnConflict {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::Return, Self::Replace, Self::Fail];

    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Return => "return",
            Self::Replace => "replace",
            Self::Fail => "fail",
        }
    }
}

impl FromStr for OnConflict {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || format!("\"{text}\" is none of {}", Self::ALL.map(Self::as_str).join(", "));
        Self::ALL.into_iter().find(|known| known.as_str() == text).ok_or_else(unknown)
    }
}

impl fmt::Display for OnConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The key of a new task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uniqueness {
    /// The key, unique among the live tasks of its class.
    pub key: String,
    /// Seconds for which it stays taken from now on, even if the task ends before.
    pub window_secs: Option<i32>,
    /// What is done if it is taken.
    pub on_conflict: OnConflict,
}

/// How a task that was asked for came to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// It is new.
    Queued,
    /// It was there, with the same key, and is as it was.
    Existing,
    /// It was there, with the same key, and got the data, times and numbers of the new one.
    Replaced,
}

/// A task that was asked for and is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct QueuedTask {
    /// Its id.
    pub id: TaskId,
    /// How it came there.
    pub arrival: Arrival,
}

/// Checks a key, which is called `what`: printable ASCII, which every engine compares in the same way and every reader reads back.
/// The tables have the same rule as a CHECK.
///
/// # Errors
/// What is wrong with it.
pub fn check_key(what: &str, key: &str) -> Result<(), String> {
    let length = key.chars().count();
    if length == 0 || length > MAX_KEY_LENGTH {
        return Err(format!("the {what} has {length} characters; 1 to {MAX_KEY_LENGTH} are allowed"));
    }
    if let Some(bad) = key.chars().find(|c| !matches!(c, ' '..='~')) {
        return Err(format!("the {what} has the character {bad:?}; printable ASCII characters are allowed"));
    }
    // MySQL and MariaDB pass over spaces at the end.
    if key.trim() != key {
        return Err(format!("the {what} has a space at one of its ends"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_on_a_conflict_reads_back_from_its_spelling() {
        for known in OnConflict::ALL {
            assert_eq!(known.to_string().parse(), Ok(known));
        }
        assert_eq!("ignore".parse::<OnConflict>().unwrap_err(), "\"ignore\" is none of return, replace, fail");
    }

    #[test]
    fn keys_that_the_engines_would_compare_differently_are_refused() {
        for good in ["a", "overview 2026-11", "a~!", &"x".repeat(190)] {
            assert_eq!(check_key("key", good), Ok(()), "{good}");
        }
        for bad in ["", " a", "a ", "a\t", "a\u{0}b", "a\n", "\u{dc}bersicht", "a\u{202e}b", &"x".repeat(191)] {
            assert!(check_key("key", bad).is_err(), "{bad:?}");
        }
    }
}
