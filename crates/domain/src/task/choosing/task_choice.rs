//! Criteria, besides classes, by which a claimant asks for tasks.

use crate::task::ids::TaskId;
use crate::task::unique::check_key;

/// The tasks that a claim may take: those that match every field that is set, or all tasks if none is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskChoice {
    /// Only this task.
    pub task: Option<TaskId>,
    /// Only tasks queued with this unique key.
    pub unique_key: Option<String>,
    /// Only tasks queued with this limit key.
    pub limit_key: Option<String>,
    /// Only tasks queued with this tag.
    pub tag: Option<String>,
}

impl TaskChoice {
    /// Checks the keys and the tag: no task can have an invalid one.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn check(&self) -> Result<(), String> {
        for (what, key) in [("unique key", &self.unique_key), ("limit key", &self.limit_key), ("tag", &self.tag)] {
            key.as_ref().map_or(Ok(()), |key| check_key(what, key))?;
        }
        Ok(())
    }

    /// Returns true if few tasks can match. A tag alone may match all tasks.
    #[must_use]
    pub const fn is_of_few(&self) -> bool {
        self.task.is_some() || self.unique_key.is_some() || self.limit_key.is_some()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_no_task_can_have_is_refused_by_name() {
        let none = TaskChoice::default();
        let with = |bad: &str| {
            let bad = Some(bad.to_owned());
            [
                ("unique key", TaskChoice { unique_key: bad.clone(), ..none.clone() }),
                ("limit key", TaskChoice { limit_key: bad.clone(), ..none.clone() }),
                ("tag", TaskChoice { tag: bad, ..none.clone() }),
            ]
        };
        assert_eq!(none.check(), Ok(()));
        assert!(with("account-17").iter().all(|(_, choice)| choice.check().is_ok()));
        for (what, choice) in ["", "\u{0}", "\u{e4}", " a"].into_iter().flat_map(with) {
            assert!(choice.check().unwrap_err().starts_with(&format!("the {what} ")), "{choice:?}");
        }
    }
}
