//! Which tasks exist for the caller on whose behalf the store is used.

use std::collections::HashSet;

use diesel::prelude::*;
use diesel::result::QueryResult;

use crate::base::cells::ShownText;
use crate::base::connection::AnyConnection;
use crate::base::schema::task_queue::dsl::{id, parent_id, task_class, task_queue};
use crate::rules::dependencies::IDS_PER_STATEMENT;
use crate::{Store, StoreError, StoreResult};
use taskqueue_domain::task::choosing::visible_tasks::VisibleTasks;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::new_task::QueueRefusal;

impl Store {
    /// Sets which tasks exist for the caller, and returns which did before.
    pub const fn set_visible(&mut self, visible: VisibleTasks) -> VisibleTasks {
        std::mem::replace(&mut self.visible, visible)
    }

    /// Returns those of these tasks that exist for the caller.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn visible_among(&mut self, ids: &[TaskId]) -> StoreResult<HashSet<TaskId>> {
        let visible = self.visible.clone();
        let ids: Vec<i64> = ids.iter().map(|task| task.0).collect();
        let found = self.read(|conn| Ok(visible_among(conn, &visible, &ids)?))?;
        Ok(found.into_iter().map(TaskId).collect())
    }

    /// Leaves out of an error the task that has a key, and its status, unless that task exists for the caller.
    pub(crate) fn without_hidden_holder(&mut self, error: StoreError) -> StoreResult<StoreError> {
        match error {
            StoreError::NotQueued { index, refusal: QueueRefusal::KeyTaken { key, holder, .. } }
                if self.visible != VisibleTasks::All && !self.visible_among(&[holder])?.contains(&holder) =>
            {
                Ok(StoreError::NotQueued { index, refusal: QueueRefusal::KeyTakenByHidden { key } })
            }
            other => Ok(other),
        }
    }

    /// Checks that this task exists for the caller.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]
    pub fn check_exists(&mut self, task: TaskId) -> StoreResult<()> {
        match self.visible_among(&[task])?.is_empty() {
            true => Err(StoreError::NotFound(format!("task {task}"))),
            false => Ok(()),
        }
    }
}

/// Returns those of these tasks that exist for a caller.
pub(crate) fn visible_among(
    conn: &mut AnyConnection,
    visible: &VisibleTasks,
    ids: &[i64],
) -> QueryResult<HashSet<i64>> {
    let mut found = HashSet::new();
    for part in ids.chunks(IDS_PER_STATEMENT) {
        let of_part = task_queue.filter(id.eq_any(part));
        match visible {
            VisibleTasks::All => found.extend(of_part.select(id).load::<i64>(conn)?),
            VisibleTasks::Family(own) => {
                let is_family = id.eq(own.0).or(parent_id.eq(own.0));
                found.extend(of_part.filter(is_family).select(id).load::<i64>(conn)?);
            }
            VisibleTasks::Classes(classes) => {
                let rows: Vec<(i64, ShownText)> = of_part.select((id, task_class)).load(conn)?;
                found.extend(rows.into_iter().filter(|(_, class)| classes.contain(&class.0)).map(|(task, _)| task));
            }
        }
    }
    Ok(found)
}
