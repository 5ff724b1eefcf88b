//! Which tasks a caller may refer to.

use crate::task::choosing::class_patterns::ClassPatterns;
use crate::task::ids::TaskId;

/// The tasks that exist for a caller. A caller that refers to another task gets the answer for a missing task, so that it cannot
/// find out which tasks there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VisibleTasks {
    /// All tasks.
    #[default]
    All,
    /// This task and its children: for its handler.
    Family(TaskId),
    /// Tasks of these classes: for a login that is limited to them.
    Classes(ClassPatterns),
}
