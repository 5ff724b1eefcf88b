//! Counts the failed attempts of a task from its runs: FailedRetries is higher after an attempt that ruled out all retries.

use diesel::prelude::*;

use crate::base::cells::TimeOrPast;
use crate::base::schema::{task_queue_events, task_queue_runs};
use crate::{Store, StoreResult};
use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::task::ids::TaskId;

impl Store {
    /// Returns the number of failed attempts of this task since its last success or `retry`, as far as its runs are kept.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn count_failed_attempts(&mut self, task: TaskId) -> StoreResult<i64> {
        self.read(|conn| {
            let started_on: Option<TimeOrPast> = task_queue_events::table
                .filter(task_queue_events::task_queue_id.eq(task.0))
                .filter(task_queue_events::kind.eq("retried"))
                .order((task_queue_events::task_queue_id.desc(), task_queue_events::id.desc()))
                .select(task_queue_events::occurred_on)
                .first(conn)
                .optional()?;
            let runs: Vec<(String, Option<TimeOrPast>)> = task_queue_runs::table
                .filter(task_queue_runs::task_queue_id.eq(task.0))
                .order((task_queue_runs::task_queue_id.desc(), task_queue_runs::id.desc()))
                .select((task_queue_runs::status, task_queue_runs::finished_on))
                .load(conn)?;
            let is_of_now = |(status, on): &&(String, Option<TimeOrPast>)| {
                status != RunStatus::Success.as_str()
                    && started_on.is_none_or(|started| on.is_none_or(|on| on > started))
            };
            let failed = [RunStatus::Error, RunStatus::Timeout].map(RunStatus::as_str);
            let count =
                runs.iter().take_while(is_of_now).filter(|(status, _)| failed.contains(&status.as_str())).count();
            Ok(i64::try_from(count).unwrap_or(i64::MAX))
        })
    }
}
