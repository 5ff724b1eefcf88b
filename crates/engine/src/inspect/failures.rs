//! `failures`: groups failed tasks by class and error, with samples for `retry` and `explain`. Changes nothing.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::context::Context;
use crate::error::EngineResult;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::text::outside_text::OutsideText;
use taskqueue_store::FailedTask;
pub use taskqueue_store::FinalCause;

/// How many failed and how many timed-out tasks are read.
const LOOKED_AT: i64 = 5_000;
/// How many samples a group has.
const SAMPLES: usize = 3;

/// A task of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailureSample {
    /// The task.
    pub task_id: TaskId,
    /// Its finished attempts without released ones.
    pub attempts: i32,
    /// Why it is not retried; `None` if it is.
    pub why_final: Option<FinalCause>,
    /// The error message of the last failed attempt.
    pub error_message: OutsideText,
    /// When that attempt ended.
    pub failed_on: Option<DateTime<Utc>>,
}

/// Tasks of one class whose last failed attempt ended with the same error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailureGroup {
    /// The class.
    pub class: String,
    /// The ErrorCode; empty if the row of the attempt was deleted.
    pub error_code: OutsideText,
    /// How many tasks.
    pub tasks: usize,
    /// How many of them are not retried.
    pub will_not_be_retried: usize,
    /// The newest of them.
    pub samples: Vec<FailureSample>,
}

impl FailureGroup {
    /// Returns when the newest of them failed.
    #[must_use]
    pub fn last_failed_on(&self) -> Option<DateTime<Utc>> {
        self.samples.first().and_then(|sample| sample.failed_on)
    }
}

/// The failed tasks in groups.
#[derive(Clone, Debug)]
pub struct Failures {
    /// The time of the database's clock when they were read.
    pub now: DateTime<Utc>,
    /// The groups, the largest first.
    pub groups: Vec<FailureGroup>,
    /// How many tasks were read.
    pub looked_at: usize,
    /// Whether there are more, older ones.
    pub has_more: bool,
}

/// Returns the failed tasks of a class, or of all classes, in groups.
///
/// # Errors
/// Returns an error if the database fails.
pub fn failures(ctx: &mut Context, class: Option<&str>) -> EngineResult<Failures> {
    let now = ctx.store.now()?;
    let (mut tasks, mut has_more) = (Vec::new(), false);
    for status in [TaskStatus::Failed, TaskStatus::Timeout] {
        let mut failed = ctx.store.list_failed_tasks(status, class, LOOKED_AT + 1)?;
        has_more |= failed.len() > usize::try_from(LOOKED_AT).unwrap_or(usize::MAX);
        failed.truncate(usize::try_from(LOOKED_AT).unwrap_or(usize::MAX));
        tasks.extend(failed);
    }
    Ok(Failures { now, looked_at: tasks.len(), groups: grouped(tasks), has_more })
}

fn grouped(mut tasks: Vec<FailedTask>) -> Vec<FailureGroup> {
    tasks.sort_by_key(|task| (std::cmp::Reverse(task.failed_on), std::cmp::Reverse(task.task_id)));
    let mut groups: HashMap<(String, String), FailureGroup> = HashMap::new();
    for task in tasks {
        let key = (task.class.clone(), task.error_code.clone());
        let group = groups.entry(key).or_insert_with(|| FailureGroup {
            class: task.class,
            error_code: task.error_code.into(),
            tasks: 0,
            will_not_be_retried: 0,
            samples: Vec::new(),
        });
        group.tasks += 1;
        group.will_not_be_retried += usize::from(task.is_final);
        if group.samples.len() < SAMPLES {
            group.samples.push(FailureSample {
                task_id: task.task_id,
                attempts: task.attempts,
                why_final: task.why_final,
                error_message: task.error_message.into(),
                failed_on: task.failed_on,
            });
        }
    }
    let mut groups: Vec<FailureGroup> = groups.into_values().collect();
    groups.sort_by(|one, other| {
        let (size, other_size) = (other.tasks, one.tasks);
        size.cmp(&other_size).then_with(|| (&one.class, &one.error_code).cmp(&(&other.class, &other.error_code)))
    });
    groups
}
