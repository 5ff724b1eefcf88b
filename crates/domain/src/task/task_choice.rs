//! Criteria, besides classes, by which a claimant asks for tasks.

use super::ids::TaskId;

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
    /// Returns true if few tasks can match. A tag alone may match all tasks.
    #[must_use]
    pub const fn is_of_few(&self) -> bool {
        self.task.is_some() || self.unique_key.is_some() || self.limit_key.is_some()
    }
}
