//! How many tasks finished, and how: the figures of charts. Changes nothing.

use std::iter::Sum;

use chrono::{DateTime, Utc};

use crate::context::Context;
use crate::error::EngineResult;
use taskqueue_domain::run::status::TaskStatus;

/// How many tasks finished in a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// Successful ones.
    pub success: i64,
    /// Those that failed or timed out and will not be retried: exhausted or quarantined.
    pub failed: i64,
    /// Cancelled and expired ones.
    pub others: i64,
}

impl Ends {
    /// Returns how many finished in any way.
    #[must_use]
    pub const fn all(self) -> i64 {
        self.success + self.failed + self.others
    }
}

impl Sum for Ends {
    fn sum<I: Iterator<Item = Self>>(ends: I) -> Self {
        ends.fold(Self::default(), |sum, ends| Self {
            success: sum.success + ends.success,
            failed: sum.failed + ends.failed,
            others: sum.others + ends.others,
        })
    }
}

/// Counts the tasks that finished from `from` on and before `until`.
///
/// # Errors
/// Returns an error if the database fails.
pub fn count_ends(ctx: &mut Context, from: DateTime<Utc>, until: DateTime<Utc>) -> EngineResult<Ends> {
    let mut ends = Ends::default();
    for (status, count) in ctx.store.count_ends(from, until)? {
        match status {
            TaskStatus::Success => ends.success += count,
            TaskStatus::Failed | TaskStatus::Timeout => ends.failed += count,
            TaskStatus::Scheduled | TaskStatus::Processing | TaskStatus::Cancelled | TaskStatus::Expired => {
                ends.others += count;
            }
        }
    }
    Ok(ends)
}
