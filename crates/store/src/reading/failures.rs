//! Failed tasks, each with the error of its last failed attempt, for `failures` to group.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use serde::Serialize;

use super::status::part_by_part;
use crate::base::cells::{ShownText, TimeOrPast};
use crate::base::connection::AnyConnection;
use crate::base::schema::{task_queue, task_queue_runs};
use crate::base::sql::allowed_retries;
use crate::base::unmarked::is_as_its_row_says;
use crate::{Store, StoreResult};
use taskqueue_domain::run::decision::rules_out_retry;
use taskqueue_domain::run::status::{RunStatus, TaskStatus};
use taskqueue_domain::task::ids::TaskId;

/// Ids in one statement.
const IDS_PER_STATEMENT: usize = 1_000;

/// Why a failed task is not retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinalCause {
    /// It has no retry left.
    NoRetryLeft,
    /// Its last attempt ended in a way that rules out a retry.
    NotRetryable,
    /// It crashed too often.
    Quarantined,
}

/// A task whose last attempt failed or timed out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailedTask {
    /// The task.
    pub task_id: TaskId,
    /// Its class.
    pub class: String,
    /// Whether it will not be retried: no retry is left, or it is quarantined.
    pub is_final: bool,
    /// Why it will not be retried.
    pub why_final: Option<FinalCause>,
    /// Attempts that ended, without released ones.
    pub attempts: i32,
    /// ErrorCode of its last failed attempt; empty if that row was deleted.
    pub error_code: String,
    /// ErrorMessage of that attempt.
    pub error_message: String,
    /// When that attempt ended.
    pub failed_on: Option<DateTime<Utc>>,
}

type Failed = (i64, ShownText, i32, i32, i32, Option<TimeOrPast>, Option<i64>);
type FailureRow = (i64, ShownText, ShownText, Option<TimeOrPast>, ShownText);

impl Store {
    /// Returns up to `limit` failed tasks of this status. For one class, the latest ScheduledOn comes first. For all classes,
    /// tasks that will be retried come first, then finished ones, and within each group the newest first.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn list_failed_tasks(
        &mut self,
        status: TaskStatus,
        class: Option<&str>,
        limit: i64,
    ) -> StoreResult<Vec<FailedTask>> {
        self.read(|conn| {
            let tasks = load_failed(conn, status, class, limit)?;
            let runs: Vec<i64> = tasks.iter().filter_map(|task| task.6).collect();
            let failures = load_failures(conn, &runs)?;
            Ok(tasks.into_iter().map(|task| with_failure(task, &failures)).collect())
        })
    }
}

fn with_failure(
    (id, class, failed, max, attempts, quarantined_on, run_id): Failed,
    failures: &HashMap<i64, FailureRow>,
) -> FailedTask {
    let failure = run_id.and_then(|run_id| failures.get(&run_id));
    let is_ruled_out = failure.is_some_and(|(.., decision)| rules_out_retry(&decision.0));
    let why_final = match (quarantined_on.is_some(), failed >= max, is_ruled_out) {
        (true, ..) => Some(FinalCause::Quarantined),
        (false, true, true) => Some(FinalCause::NotRetryable),
        (false, true, false) => Some(FinalCause::NoRetryLeft),
        (false, false, _) => None,
    };
    FailedTask {
        task_id: TaskId(id),
        class: class.0,
        is_final: why_final.is_some(),
        why_final,
        attempts,
        error_code: failure.map(|(_, code, ..)| code.0.clone()).unwrap_or_default(),
        error_message: failure.map(|(_, _, message, ..)| message.0.clone()).unwrap_or_default(),
        failed_on: failure.and_then(|(_, _, _, finished_on, _)| *finished_on).map(DateTime::from),
    }
}

/// Loads tasks with the id of their last failed run.
fn load_failed(
    conn: &mut AnyConnection,
    status: TaskStatus,
    class: Option<&str>,
    limit: i64,
) -> QueryResult<Vec<Failed>> {
    use task_queue::dsl;
    let failures = [RunStatus::Error, RunStatus::Timeout].map(RunStatus::as_str);
    let failed = || {
        let last_failure = task_queue_runs::table
            .filter(task_queue_runs::task_queue_id.eq(dsl::id))
            .filter(task_queue_runs::status.eq_any(failures))
            .order((task_queue_runs::task_queue_id.desc(), task_queue_runs::id.desc()))
            .select(task_queue_runs::id)
            .limit(1)
            .single_value();
        let (retries, quarantined_on) = ((dsl::failed_retries, allowed_retries(), dsl::attempts), dsl::quarantined_on);
        let columns = (dsl::id, dsl::task_class, retries.0, retries.1, retries.2, quarantined_on, last_failure);
        let of_status = dsl::task_queue.filter(dsl::last_status.eq(status.as_str()));
        of_status.filter(is_as_its_row_says()).select(columns)
    };
    // The order names all columns of the index, as for a page of `status`.
    if let Some(class) = class {
        let order = (dsl::task_class.desc(), dsl::last_status.desc(), dsl::scheduled_on.desc(), dsl::id.desc());
        return failed().filter(dsl::task_class.eq(class)).order(order).limit(limit).load(conn);
    }
    part_by_part(limit, |part, missing| {
        let order = (dsl::last_status.desc(), dsl::finished.desc(), dsl::status_on.desc(), dsl::id.desc());
        failed().filter(dsl::finished.eq(part)).order(order).limit(missing).load(conn)
    })
}

fn load_failures(conn: &mut AnyConnection, runs: &[i64]) -> QueryResult<HashMap<i64, FailureRow>> {
    use task_queue_runs::dsl;
    let mut found = HashMap::with_capacity(runs.len());
    for part in runs.chunks(IDS_PER_STATEMENT) {
        let rows: Vec<FailureRow> = dsl::task_queue_runs
            .filter(dsl::id.eq_any(part))
            .select((dsl::id, dsl::error_code, dsl::error_message, dsl::finished_on, dsl::decision))
            .load(conn)?;
        found.extend(rows.into_iter().map(|row| (row.0, row)));
    }
    Ok(found)
}
