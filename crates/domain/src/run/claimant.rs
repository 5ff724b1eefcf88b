//! The validated name of a claimant: a worker that is not a runner of this program.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::Serialize;

/// 1 to 190 visible characters, so that the name reads back as it was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ClaimantId(String);

/// The longest name, in characters: what an index of every engine can hold.
const MAX_LENGTH: usize = 190;

/// A claimant that is temporarily not offered a task, because its claim of that task expired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeldBack {
    /// Its name.
    pub claimant: String,
    /// When it may be offered the task again.
    pub until: DateTime<Utc>,
}

impl ClaimantId {
    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClaimantId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() || text.chars().count() > MAX_LENGTH {
            return Err(format!("the name of a claimant must have 1 to {MAX_LENGTH} characters"));
        }
        if let Some(bad) = text.chars().find(|c| c.is_whitespace() || c.is_control()) {
            return Err(format!("the name of a claimant cannot contain {bad:?}: no spaces and no control characters"));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for ClaimantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_can_be_seen() {
        for name in ["bot-1", "host.example.org:4711", "ünï", &"x".repeat(190)] {
            assert_eq!(name.parse::<ClaimantId>().unwrap().as_str(), name);
        }
        for name in ["", " ", "a b", "a\n", "a\0", &"x".repeat(191)] {
            assert!(name.parse::<ClaimantId>().is_err(), "{name:?}");
        }
    }
}
