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
}

impl TaskChoice {
    /// Returns true where any task may be taken.
    #[must_use]
    pub const fn is_any(&self) -> bool {
        self.task.is_none() && self.unique_key.is_none() && self.limit_key.is_none()
    }
}
