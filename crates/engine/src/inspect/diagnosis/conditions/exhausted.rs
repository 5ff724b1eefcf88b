//! Explains why a failed task is not retried, and after how many attempts.

use crate::error::EngineResult;
use crate::inspect::diagnosis::conditions::{Inquiry, Reason};
use taskqueue_domain::task::records::{Run, Task};

impl Inquiry<'_> {
    /// If the first attempt ruled out a retry, FailedRetries was set to MaxRetries; then the attempts are counted.
    pub(crate) fn exhausted(&mut self, task: &Task, last_run: Option<&Run>, error: String) -> EngineResult<Reason> {
        let no_retry_rule = last_run.and_then(Run::no_retry_rule).map(str::to_owned);
        let failed_attempts = match no_retry_rule {
            None => task.failed_retries,
            Some(_) if task.attempts <= 1 => 1,
            Some(_) => {
                let counted = self.ctx.store.count_failed_attempts(task.id)?;
                i32::try_from(counted).unwrap_or(i32::MAX).clamp(1, task.failed_retries.max(1))
            }
        };
        Ok(Reason::Exhausted { error, failed_attempts, no_retry_rule })
    }
}
