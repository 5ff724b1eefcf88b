//! Rows as Diesel reads and writes them, and their conversion to domain types.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer};

use super::cells::{Cell, ExactInt, ExactText, JsonText, Maybe, ShownText, TimeOrPast};
use super::schema::{task_queue, task_queue_dependencies, task_queue_runners, task_queue_runs};
use super::sql::{AllowedRetries, SqlMoment, allowed_retries};
use super::unmarked::{processed_run, status_in_process};
use taskqueue_domain::run::status::{Stored, TaskStatus};
use taskqueue_domain::task::ids::{RunId, RunnerId, TaskId};
use taskqueue_domain::task::records::{Run, Runner, Task, TaskSchedule};
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_domain::text::unreadable::{RowReader, StoredText, Unreadable};

/// The id of a row.
#[derive(Clone, Copy, Debug, QueryableByName)]
pub(crate) struct IdRow {
    #[diesel(sql_type = BigInt)]
    pub(crate) id: i64,
}

/// A dependency to insert.
#[derive(Clone, Copy, Debug, Insertable)]
#[diesel(table_name = task_queue_dependencies)]
pub(crate) struct DependencyRow {
    pub(crate) task_id: i64,
    pub(crate) depends_on_id: i64,
    pub(crate) is_satisfied: bool,
    pub(crate) needs_success: bool,
}

/// A prerequisite, with the columns that show whether it is finished.
#[derive(Clone, Debug, Queryable, QueryableByName, Selectable)]
#[diesel(table_name = task_queue)]
pub(crate) struct PrerequisiteRow {
    pub(crate) id: i64,
    #[diesel(deserialize_as = ShownText)]
    last_status: String,
    failed_retries: i32,
    #[diesel(sql_type = Integer, select_expression = allowed_retries(), select_expression_type = AllowedRetries)]
    allowed_retries: i32,
    #[diesel(deserialize_as = Maybe<TimeOrPast>)]
    quarantined_on: Option<SqlMoment>,
    current_run_id: Option<i64>,
}

impl PrerequisiteRow {
    /// Returns true if a task need not wait for it: because it has succeeded, or, without `needs_success`, because it is finished
    /// in any way.
    pub(crate) fn satisfies(&self, needs_success: bool) -> bool {
        match TaskStatus::parse(&self.last_status) {
            Some(TaskStatus::Success) => true,
            _ if needs_success => false,
            Some(TaskStatus::Failed | TaskStatus::Timeout) if self.failed_retries >= self.allowed_retries => {
                // A run that waits although its retries were lowered is executed, and its end decides.
                self.current_run_id.is_none()
            }
            status => self.quarantined_on.is_some() || status.is_some_and(TaskStatus::is_done),
        }
    }
}

/// A task as stored. Applications write most of these columns with their own SQL, so any of them may be unreadable.
#[derive(Queryable, Selectable)]
#[diesel(table_name = task_queue)]
pub(crate) struct TaskRow {
    id: i64,
    queued_on: Cell<SqlMoment>,
    queued_by_id: Cell<ExactText>,
    scheduled_on: Cell<SqlMoment>,
    next_attempt_on: Option<Cell<SqlMoment>>,
    start_before: Option<Cell<SqlMoment>>,
    task_class: Cell<ExactText>,
    task_data: Cell<JsonText>,
    last_status: ShownText,
    max_retries: Option<Cell<ExactInt>>,
    retry_limit: Option<Cell<ExactInt>>,
    failed_retries: Cell<ExactInt>,
    attempts: Cell<ExactInt>,
    priority: Cell<ExactInt>,
    timeout_secs: Option<Cell<ExactInt>>,
    waiting_for: Cell<ExactInt>,
    current_run_id: Option<i64>,
    #[diesel(select_expression = processed_run(), select_expression_type = processed_run)]
    processed_run_id: Option<i64>,
    backoff: Option<Cell<ExactText>>,
    crashes: Cell<ExactInt>,
    quarantined_on: Option<Cell<SqlMoment>>,
    recurrence: Option<Cell<ExactText>>,
    time_zone: Cell<ExactText>,
    catch_up: Cell<ExactText>,
    overlap: Cell<ExactText>,
    schedule_id: Option<i64>,
    planned_on: Option<Cell<SqlMoment>>,
    schedule_status: ShownText,
    updated_on: Cell<SqlMoment>,
    unique_key: Option<Cell<ExactText>>,
    unique_until: Option<Cell<SqlMoment>>,
    limit_key: Option<Cell<ExactText>>,
    tag: Option<Cell<ExactText>>,
    name: Option<Cell<ExactText>>,
    parent_id: Option<i64>,
    keep_secs: Option<Cell<ExactInt>>,
    class_keep_secs: Option<Cell<ExactInt>>,
    keep_results_secs: Option<Cell<ExactInt>>,
    expires_on: Option<Cell<SqlMoment>>,
    meta: Option<Cell<JsonText>>,
}

/// Reads the cells of a row, and records which of them cannot be read.
#[derive(Default)]
struct CellReader(RowReader);

impl CellReader {
    fn text<T: Into<String>>(&mut self, column: &'static str, cell: Cell<T>) -> String {
        self.0.take_text(cell.read(column).map(Into::into))
    }

    fn maybe_text<T: Into<String>>(&mut self, column: &'static str, cell: Option<Cell<T>>) -> Option<String> {
        cell.map(|cell| self.text(column, cell))
    }

    fn int(&mut self, column: &'static str, cell: Cell<ExactInt>) -> i32 {
        self.0.take(cell.read(column).map(|number| number.0))
    }

    fn instant(&mut self, column: &'static str, cell: Cell<SqlMoment>) -> DateTime<Utc> {
        self.0.take(cell.read(column).map(DateTime::from))
    }

    fn maybe_instant(&mut self, column: &'static str, cell: Option<Cell<SqlMoment>>) -> Option<DateTime<Utc>> {
        cell.map(|cell| self.instant(column, cell))
    }

    fn class(&mut self, cell: Cell<ExactText>) -> Stored<TaskClass> {
        let known = self.0.unreadable_count();
        let text = self.text("TaskClass", cell);
        if self.0.unreadable_count() > known {
            return Stored::Unknown(text);
        }
        let class = Stored::from(text);
        if let Stored::Unknown(text) = &class {
            self.0.note(Unreadable::of_text("TaskClass", StoredText::from(text.as_bytes())));
        }
        class
    }
}

impl TaskRow {
    /// Returns the status, and the open run, which the row may not contain yet.
    fn status_and_run(&self) -> (Stored<TaskStatus>, Option<RunId>) {
        let last_status = self.last_status.0.as_str();
        match (self.current_run_id, self.processed_run_id) {
            (None, Some(run_id)) => {
                let status = status_in_process(last_status).map(Stored::Known);
                (status.unwrap_or_else(|| last_status.to_owned().into()), Some(RunId(run_id)))
            }
            (run_id, _) => (last_status.to_owned().into(), run_id.map(RunId)),
        }
    }
}

impl From<TaskRow> for Task {
    fn from(row: TaskRow) -> Self {
        let (status, current_run_id) = row.status_and_run();
        let mut cells = CellReader::default();
        let time_zone = cells.text("TimeZone", row.time_zone);
        let catch_up = cells.text("CatchUp", row.catch_up);
        let overlap = cells.text("Overlap", row.overlap);
        let planned_on = cells.maybe_instant("PlannedOn", row.planned_on);
        let schedule = cells.maybe_text("Recurrence", row.recurrence).map(|every| TaskSchedule {
            id: TaskId(row.schedule_id.unwrap_or(row.id)),
            every,
            time_zone,
            catch_up,
            overlap,
            planned_on,
            status: String::from(row.schedule_status).into(),
        });
        Self {
            id: TaskId(row.id),
            queued_on: cells.instant("QueuedOn", row.queued_on),
            queued_by: cells.text("QueuedById", row.queued_by_id),
            scheduled_on: cells.instant("ScheduledOn", row.scheduled_on),
            next_attempt_on: cells.maybe_instant("NextAttemptOn", row.next_attempt_on),
            start_before: cells.maybe_instant("StartBefore", row.start_before),
            class: cells.class(row.task_class),
            data: cells.text("TaskData", row.task_data),
            status,
            max_retries: row.max_retries.map(|cell| cells.int("MaxRetries", cell)),
            retry_limit: row.retry_limit.map(|cell| cells.int("RetryLimit", cell)),
            failed_retries: cells.int("FailedRetries", row.failed_retries),
            attempts: cells.int("Attempts", row.attempts),
            priority: cells.int("Priority", row.priority),
            timeout_secs: row.timeout_secs.map(|cell| cells.int("Timeout", cell)),
            waiting_for: cells.int("WaitingFor", row.waiting_for),
            current_run_id,
            backoff: cells.maybe_text("Backoff", row.backoff),
            crashes: cells.int("Crashes", row.crashes),
            quarantined_on: cells.maybe_instant("QuarantinedOn", row.quarantined_on),
            schedule,
            updated_on: cells.instant("UpdatedOn", row.updated_on),
            unique_key: cells.maybe_text("UniqueKey", row.unique_key),
            unique_until: cells.maybe_instant("UniqueUntil", row.unique_until),
            limit_key: cells.maybe_text("LimitKey", row.limit_key),
            tag: cells.maybe_text("Tag", row.tag),
            name: cells.maybe_text("Name", row.name),
            parent_id: row.parent_id.map(TaskId),
            keep_secs: row.keep_secs.map(|cell| cells.int("Keep", cell)),
            class_keep_secs: row.class_keep_secs.map(|cell| cells.int("ClassKeep", cell)),
            keep_results_secs: row.keep_results_secs.map(|cell| cells.int("KeepResults", cell)),
            expires_on: cells.maybe_instant("ExpiresOn", row.expires_on),
            meta: cells.maybe_text("Meta", row.meta),
            unreadable: cells.0.finish(),
        }
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = task_queue_runs)]
pub(crate) struct RunRow {
    id: i64,
    task_queue_id: i64,
    task_class: ShownText,
    attempt: i32,
    created_on: TimeOrPast,
    started_on: Option<TimeOrPast>,
    percents_completed: i32,
    progress_message: ShownText,
    finished_on: Option<TimeOrPast>,
    results: Option<ShownText>,
    status: ShownText,
    error_code: ShownText,
    error_message: ShownText,
    decision: ShownText,
    process_id: Option<i64>,
    runner_id: Option<i64>,
    claimant: Option<ShownText>,
    token: Option<ShownText>,
    host: ShownText,
    process_identity: ShownText,
    lease_expires_on: Option<TimeOrPast>,
    handler_process_id: Option<i64>,
    handler_identity: ShownText,
    cpu_msecs: Option<i64>,
    peak_memory_bytes: Option<i64>,
    cancel_requested_on: Option<TimeOrPast>,
    cancel_reason: ShownText,
    limit_key: Option<ShownText>,
    has_key_slot: bool,
    updated_on: TimeOrPast,
}

impl From<RunRow> for Run {
    fn from(row: RunRow) -> Self {
        Self {
            id: RunId(row.id),
            task_id: TaskId(row.task_queue_id),
            class: row.task_class.0.into(),
            attempt: row.attempt,
            status: row.status.0.into(),
            created_on: row.created_on.into(),
            started_on: row.started_on.map(Into::into),
            percents_completed: row.percents_completed,
            progress_message: row.progress_message.into(),
            finished_on: row.finished_on.map(Into::into),
            results: row.results.map(Into::into),
            error_code: row.error_code.into(),
            error_message: row.error_message.into(),
            decision: row.decision.into(),
            process_id: row.process_id,
            runner_id: row.runner_id.map(RunnerId),
            claimant: row.claimant.map(Into::into),
            host: row.host.into(),
            process_identity: row.process_identity.into(),
            token: row.token.map(Into::into),
            lease_expires_on: row.lease_expires_on.map(Into::into),
            handler_process_id: row.handler_process_id,
            handler_identity: row.handler_identity.into(),
            cpu_msecs: row.cpu_msecs,
            peak_memory_bytes: row.peak_memory_bytes,
            cancel_requested_on: row.cancel_requested_on.map(Into::into),
            cancel_reason: row.cancel_reason.into(),
            limit_key: row.limit_key.map(Into::into),
            has_key_slot: row.has_key_slot,
            updated_on: row.updated_on.into(),
        }
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = task_queue_runners)]
pub(crate) struct RunnerRow {
    id: i64,
    process_id: i64,
    started_on: TimeOrPast,
    finished_on: Option<TimeOrPast>,
    host: ShownText,
    process_identity: ShownText,
    slots: i32,
    heartbeat_on: TimeOrPast,
    heartbeat_boot_ms: Option<i64>,
    version: ShownText,
    name: ShownText,
    classes: Option<ShownText>,
}

impl From<RunnerRow> for Runner {
    fn from(row: RunnerRow) -> Self {
        Self {
            id: RunnerId(row.id),
            name: row.name.into(),
            process_id: row.process_id,
            host: row.host.into(),
            process_identity: row.process_identity.into(),
            slots: row.slots,
            version: row.version.into(),
            started_on: row.started_on.into(),
            heartbeat_on: row.heartbeat_on.into(),
            heartbeat_boot_ms: row.heartbeat_boot_ms,
            finished_on: row.finished_on.map(Into::into),
            classes: row.classes.and_then(|json| serde_json::from_str(&json.0).ok()),
        }
    }
}
