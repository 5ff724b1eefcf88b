//! Which classes a runner executes, as stored in its row. It explains why a run waits; claims do not use it.

use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

/// The classes that a runner executes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedClasses {
    /// Names, or patterns with `*`, that have a handler there.
    pub known: Vec<String>,
    /// The only names, or patterns with `*` and `?`, that it claims; empty claims all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
}

impl ServedClasses {
    /// Returns true if the runner executes runs of this class.
    #[must_use]
    pub fn includes(&self, class: &str) -> bool {
        let matches = |patterns: &[String]| patterns.iter().any(|pattern| WildMatch::new(pattern).matches(class));
        matches(&self.known) && (self.only.is_empty() || matches(&self.only))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(known: &[&str], only: &[&str]) -> ServedClasses {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        ServedClasses { known: owned(known), only: owned(only) }
    }

    #[test]
    fn a_runner_executes_what_it_knows_and_was_not_kept_from() {
        assert!(served(&["mail.*", "echo"], &[]).includes("mail.send"));
        assert!(!served(&["mail.*", "echo"], &[]).includes("import"));
        assert!(!served(&["mail.*", "echo"], &["echo"]).includes("mail.send"));
        assert!(served(&["mail.*", "echo"], &["mail.s*"]).includes("mail.send"));
        assert!(!served(&[], &["echo"]).includes("echo"));
    }

    #[test]
    fn what_a_runner_says_of_itself_is_read_as_it_was_written() {
        for classes in [served(&["a", "b.*"], &[]), served(&["a"], &["a"])] {
            let text = serde_json::to_string(&classes).unwrap();
            assert_eq!(serde_json::from_str::<ServedClasses>(&text).unwrap(), classes, "{text}");
        }
    }
}
