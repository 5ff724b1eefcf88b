//! Unique tasks: at most one live task per class has a given key. The database enforces it with an index on the generated column
//! LiveUniqueKey. A test of the store checks that the column agrees with [`Task::has_its_key`](super::records::Task).

use serde::Serialize;

use super::ids::TaskId;
use crate::text::words::words;

/// The longest key, in characters: what an index of every engine can hold.
pub const MAX_KEY_LENGTH: usize = 190;

/// What to do with a new task whose key is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// Return the existing task.
    #[default]
    Return,
    /// Give the existing task the data, times and numbers of the new one, unless it is being processed.
    Replace,
    /// Return an error.
    Fail,
}

words! {
    /// Returns the spelling.
    OnConflict { Return = "return", Replace = "replace", Fail = "fail" }
    else |text| format!("\"{text}\" is not one of {}", Self::ALL.map(Self::as_str).join(", "))
}

/// The key of a new task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uniqueness {
    /// The key, unique among the live tasks of its class.
    pub key: String,
    /// Seconds from now for which the key stays taken, even if the task ends sooner.
    pub window_secs: Option<i32>,
    /// What to do if the key is taken.
    pub on_conflict: OnConflict,
}

/// How a queueing request was satisfied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// The task is new.
    Queued,
    /// A task with the same key existed; it is unchanged.
    Existing,
    /// A task with the same key existed, and got the data, times and numbers of the new one.
    Replaced,
}

/// The task that a queueing request created or found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct QueuedTask {
    /// Its id.
    pub id: TaskId,
    /// How the request was satisfied.
    pub arrival: Arrival,
}

/// Checks a key, which messages call `what`: printable ASCII, which every engine compares alike and which reads back unchanged.
/// The tables enforce the same rule with a CHECK.
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
    // MySQL and MariaDB ignore trailing spaces in comparisons.
    if key.trim() != key {
        return Err(format!("the {what} begins or ends with a space"));
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
        assert_eq!("ignore".parse::<OnConflict>().unwrap_err(), "\"ignore\" is not one of return, replace, fail");
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
