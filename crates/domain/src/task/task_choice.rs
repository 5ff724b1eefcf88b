//! Which tasks a claimant asks for, beside their classes.

use super::ids::TaskId;

/// The tasks that a claim may take: all where nothing is set, else those for which everything holds that is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskChoice {
    /// This task alone.
    pub task: Option<TaskId>,
    /// Tasks that were queued with this unique key.
    pub unique_key: Option<String>,
    /// Tasks that were queued with this limit key.
    pub limit_key: Option<String>,
    /// Tasks that were queued with this tag.
    pub tag: Option<String>,
}

impl TaskChoice {
    /// Returns true where it means few tasks. A tag alone may mean as many as there are.
    #[must_use]
    pub const fn is_of_few(&self) -> bool {
        self.task.is_some() || self.unique_key.is_some() || self.limit_key.is_some()
    }
}
