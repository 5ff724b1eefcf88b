//! Notices: what operators are notified of, and how several notices become one message.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::task::ids::{RunId, TaskId};
use crate::text::words::words;

/// Notices that a message shows one by one; the others appear only in its counts.
const SHOWN: usize = 50;
/// The longest pause between two messages that a host can configure, in seconds.
pub const MAX_EVERY_SECS: i64 = 86_400;

/// The kinds of notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// A task has no retry left: it was resolved without success.
    Exhausted,
    /// A task crashed too often.
    Quarantined,
    /// A class cannot be executed on a host.
    Held,
    /// A run should have been rescued, but its handler could not be killed.
    Stuck,
}

words! {
    /// Returns the spelling in the column Kind.
    NoticeKind { Exhausted = "exhausted", Quarantined = "quarantined", Held = "held", Stuck = "stuck" }
}

impl NoticeKind {
    /// The kinds that report a task that will not be retried.
    pub const FINAL_FAILURES: [Self; 2] = [Self::Exhausted, Self::Quarantined];
}

/// A notice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Notice {
    /// When it happened, by the database's clock.
    pub occurred_on: DateTime<Utc>,
    /// The kind, as stored: a newer version may have more kinds.
    pub kind: String,
    /// The task.
    pub task_id: Option<TaskId>,
    /// Its run.
    pub run_id: Option<RunId>,
    /// Its class.
    pub class: String,
    /// The host on which it happened.
    pub host: String,
    /// The error code of the run.
    pub error_code: String,
    /// The error message of the run.
    pub error_message: String,
}

/// The number of notices with the same kind, class and error code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// [`Notice::kind`]
    pub kind: String,
    /// [`Notice::class`]
    pub class: String,
    /// [`Notice::error_code`]
    pub error_code: String,
    /// How many there are.
    pub count: usize,
}

/// One message about any number of notices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Digest {
    /// The number of notices.
    pub count: usize,
    /// When the first of them happened.
    pub since: DateTime<Utc>,
    /// When the last of them happened.
    pub until: DateTime<Utc>,
    /// All notices, counted by group.
    pub groups: Vec<Group>,
    /// The first notices, one by one.
    pub notices: Vec<Notice>,
}

impl Digest {
    /// Returns a digest of the notices; `None` if there are none.
    #[must_use]
    pub fn of(notices: &[Notice]) -> Option<Self> {
        let times = || notices.iter().map(|notice| notice.occurred_on);
        let (since, until) = times().min().zip(times().max())?;
        let mut counts: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
        for notice in notices {
            *counts.entry((&notice.kind, &notice.class, &notice.error_code)).or_default() += 1;
        }
        let group = |((kind, class, error_code), count): ((&str, &str, &str), usize)| Group {
            kind: kind.to_owned(),
            class: class.to_owned(),
            error_code: error_code.to_owned(),
            count,
        };
        let groups = counts.into_iter().map(group).collect();
        let notices_shown = notices.iter().take(SHOWN).cloned().collect();
        Some(Self { count: notices.len(), since, until, groups, notices: notices_shown })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(class: &str, secs: i64) -> Notice {
        Notice {
            occurred_on: DateTime::UNIX_EPOCH + chrono::TimeDelta::seconds(secs),
            kind: "exhausted".to_owned(),
            task_id: Some(TaskId(secs)),
            run_id: None,
            class: class.to_owned(),
            host: String::new(),
            error_code: "exit-1".to_owned(),
            error_message: String::new(),
        }
    }

    #[test]
    fn a_digest_of_a_thousand_notices_counts_all_and_shows_the_first() {
        let notices: Vec<Notice> =
            (0..1_000).map(|secs| notice(["a", "b"][usize::from(secs % 4 == 0)], secs)).collect();
        let digest = Digest::of(&notices).unwrap();
        let counts: Vec<(&str, usize)> =
            digest.groups.iter().map(|group| (group.class.as_str(), group.count)).collect();
        assert_eq!(counts, [("a", 750), ("b", 250)]);
        assert_eq!((digest.count, digest.notices.len()), (1_000, SHOWN));
        assert_eq!((digest.until - digest.since).num_seconds(), 999);
    }

    #[test]
    fn without_notices_there_is_no_message() {
        assert_eq!(Digest::of(&[]), None);
    }
}
