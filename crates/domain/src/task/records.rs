//! Tasks, runs and runners as the library hands them out.

use chrono::{DateTime, TimeDelta, Utc};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::ids::{RunId, RunnerId, TaskId};
use super::task_class::TaskClass;
use crate::run::decision::rules_out_retry;
use crate::run::status::{RunStatus, ScheduleStatus, Stored, TaskStatus};
use crate::served::ServedClasses;
use crate::text::unreadable::Unreadable;
use crate::time::recurrence::Recurrence;
use crate::time::retention::Retention;

/// A row of TaskQueue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Task {
    /// Id
    pub id: TaskId,
    /// When it was queued.
    pub queued_on: DateTime<Utc>,
    /// Who queued it.
    pub queued_by: String,
    /// When it was to be processed, as planned when it was queued or edited.
    pub scheduled_on: DateTime<Utc>,
    /// When its next attempt comes, after one that failed or was released; `None` means ScheduledOn.
    pub next_attempt_on: Option<DateTime<Utc>>,
    /// Task class
    pub class: Stored<TaskClass>,
    /// JSON text.
    pub data: String,
    /// LastStatus
    pub status: Stored<TaskStatus>,
    /// Failed attempts before it is exhausted; `None` takes what the setting says when an attempt fails.
    pub max_retries: Option<i32>,
    /// Set once it is exhausted by the settings: the failed attempts that they allowed then.
    pub retry_limit: Option<i32>,
    /// Failed attempts since the last success.
    pub failed_retries: i32,
    /// Attempts that ended, given back ones left out.
    pub attempts: i32,
    /// Higher first.
    pub priority: i32,
    /// Seconds; `None` takes the class's or the system-wide one.
    pub timeout_secs: Option<i32>,
    /// Dependencies that have not succeeded yet.
    pub waiting_for: i32,
    /// The open run.
    pub current_run_id: Option<RunId>,
    /// The waits before its retries, as written; `None` takes the class's or the system-wide ones.
    pub backoff: Option<String>,
    /// Crashes of its handler or its runner since the last success.
    pub crashes: i32,
    /// Since when it is not tried again, because it crashed too often.
    pub quarantined_on: Option<DateTime<Utc>>,
    /// The schedule that it belongs to.
    pub schedule: Option<TaskSchedule>,
    /// When the row changed last.
    pub updated_on: DateTime<Utc>,
    /// A key that no other live task of its class has.
    pub unique_key: Option<String>,
    /// Until when the key stays taken, even if the task ends before.
    pub unique_until: Option<DateTime<Utc>>,
    /// The key of which only so many are processed at once, if it has one.
    pub limit_key: Option<String>,
    /// What it belongs to, such as an account, by which claimants and selections find it.
    pub tag: Option<String>,
    /// The task whose handler queued it.
    pub parent_id: Option<TaskId>,
    /// Seconds for which it is kept after it is over, 0 for ever; `None` takes the class's or the setting.
    pub keep_secs: Option<i32>,
    /// What its class stated about that when an attempt of it ended.
    pub class_keep_secs: Option<i32>,
    /// The same of the results of its runs, after the end of each.
    pub keep_results_secs: Option<i32>,
    /// When it may be deleted, where it or its class states how long it is kept and it is over.
    pub expires_on: Option<DateTime<Utc>>,
    /// Its metadata: the text of a JSON object; `None` where it has none.
    pub meta: Option<String>,
    /// The columns that cannot be read. Their fields hold the default of their type, those of text what can be shown. A task
    /// that has any is set aside when it is claimed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
}

/// What a row of TaskQueue says of its schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskSchedule {
    /// The id of the first row of the chain.
    pub id: TaskId,
    /// The cron expression, as it stands in the row.
    pub every: String,
    /// The name of the zone, as it stands in the row.
    pub time_zone: String,
    /// How it catches up, as it stands in the row.
    pub catch_up: String,
    /// The planned time that this row is for; `None` until `create-runs` has seen a row that was inserted without.
    pub planned_on: Option<DateTime<Utc>>,
    /// Where the row stands in the chain.
    pub status: Stored<ScheduleStatus>,
}

impl TaskSchedule {
    /// When it happens.
    ///
    /// # Errors
    /// What cannot be read, as a sentence without a full stop: whoever inserts rows by SQL can write anything there.
    pub fn recurrence(&self) -> Result<Recurrence, String> {
        Recurrence::parse(&self.every, &self.time_zone, &self.catch_up)
    }
}

impl Task {
    /// The data as a type of Rust.
    ///
    /// # Errors
    /// The JSON is not that of such a value.
    pub fn data_as<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(&self.data)
    }

    /// Returns the time that this task of a schedule is for once it is to be processed at `to`, before its planned time: that
    /// moment itself, so that the planned time remains for the next task.
    #[must_use]
    pub fn planned_on_if_moved_up(&self, to: DateTime<Utc>, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let schedule = self.schedule.as_ref()?;
        let goes_on = schedule.status.is(ScheduleStatus::Active) || schedule.status.is(ScheduleStatus::Paused);
        let moved = to.max(now);
        schedule.planned_on.is_some_and(|planned_on| goes_on && moved < planned_on).then_some(moved)
    }

    /// The metadata as a type of Rust; of a task without any, that of `{}`.
    ///
    /// # Errors
    /// The JSON is not that of such a value.
    pub fn meta_as<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.meta.as_deref().unwrap_or("{}"))
    }

    /// Returns until when it is kept, by what it or its class states or else by the settings; `None` where it is not over, or is
    /// kept without a limit.
    #[must_use]
    pub fn kept_until(&self, retention: &Retention) -> Option<DateTime<Utc>> {
        let is_ended =
            |status: &Stored<ScheduleStatus>| status.is(ScheduleStatus::Followed) || status.is(ScheduleStatus::Ended);
        let is_head = self.schedule.as_ref().is_some_and(|schedule| !is_ended(&schedule.status));
        if !self.is_settled() || self.current_run_id.is_some() || is_head {
            return None;
        }
        if self.keep_secs.or(self.class_keep_secs).is_some() {
            return self.expires_on;
        }
        let Stored::Known(status) = &self.status else { return None };
        self.over_on().checked_add_signed(TimeDelta::try_seconds(retention.of(*status).older_than_secs()?)?)
    }

    /// Returns when it ended, or until when it keeps its key where that is later; of a task that is over.
    #[must_use]
    pub fn over_on(&self) -> DateTime<Utc> {
        self.unique_until.map_or(self.updated_on, |until| until.max(self.updated_on))
    }

    /// From when on it may be processed.
    #[must_use]
    pub fn due_from(&self) -> DateTime<Utc> {
        self.next_attempt_on.unwrap_or(self.scheduled_on)
    }

    /// Failed attempts before it is exhausted, as far as its row says.
    #[must_use]
    pub fn known_retry_limit(&self) -> Option<i32> {
        self.retry_limit.or(self.max_retries)
    }

    /// Failed for good: no retry is left.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        (self.status.is(TaskStatus::Failed) || self.status.is(TaskStatus::Timeout))
            && self.known_retry_limit().is_some_and(|limit| self.failed_retries >= limit)
    }

    /// Nothing happens to it any more unless somebody wants it to.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let is_done = self.status.is(TaskStatus::Success) || self.status.is(TaskStatus::Cancelled);
        is_done || self.is_exhausted() || (self.quarantined_on.is_some() && !self.status.is(TaskStatus::Processing))
    }

    /// Whether its key, if it has one, is taken: until it has settled and its last run has ended, but not by the waiting run
    /// of a task that was cancelled, which is not executed any more; and for as long as it has a window, which whoever comes
    /// across it takes away once it is over.
    #[must_use]
    pub fn has_its_key(&self) -> bool {
        let has_run = self.current_run_id.is_some() && !self.status.is(TaskStatus::Cancelled);
        !self.is_settled() || has_run || self.unique_until.is_some()
    }
}

/// A row of TaskQueueRuns, without its captured output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Run {
    /// Id
    pub id: RunId,
    /// The task that it is an attempt of.
    pub task_id: TaskId,
    /// Task class, copied from the task.
    pub class: Stored<TaskClass>,
    /// Number of the attempt within its task, from 1; a released run's number is used again.
    pub attempt: i32,
    /// Status
    pub status: Stored<RunStatus>,
    /// When it was created.
    pub created_on: DateTime<Utc>,
    /// When a runner claimed it.
    pub started_on: Option<DateTime<Utc>>,
    /// 0 to 100, as the handler reported.
    pub percents_completed: i32,
    /// The last message that the handler sent with its progress.
    pub progress_message: String,
    /// When it ended, however it ended.
    pub finished_on: Option<DateTime<Utc>>,
    /// JSON text that the handler left.
    pub results: Option<String>,
    /// Empty unless it failed.
    pub error_code: String,
    /// Empty unless it failed.
    pub error_message: String,
    /// What was decided at its end, and by which rule.
    pub decision: String,
    /// PID of the runner that runs or ran it.
    pub process_id: Option<i64>,
    /// The runner's row; `None` also for a claimant's run.
    pub runner_id: Option<RunnerId>,
    /// The outside worker that claimed it; `None` for a run of a runner.
    pub claimant: Option<String>,
    /// Host of the runner, or from which the claimant asked.
    pub host: String,
    /// Who the runner is, beyond its PID: boot, PID namespace, PID, start ticks.
    #[serde(skip)]
    pub process_identity: String,
    /// The fence: every write for the run must show it.
    #[serde(skip)]
    pub token: Option<String>,
    /// When anybody may take the run from its runner.
    pub lease_expires_on: Option<DateTime<Utc>>,
    /// PID of the handler.
    pub handler_process_id: Option<i64>,
    /// Who the handler is, beyond its PID.
    #[serde(skip)]
    pub handler_identity: String,
    /// When somebody asked for its end, if anybody did.
    pub cancel_requested_on: Option<DateTime<Utc>>,
    /// Why, or who.
    pub cancel_reason: String,
    /// The key of which only so many are processed at once, if its task had one when the run was created.
    pub limit_key: Option<String>,
    /// Whether it has, or had, one of the slots of that key: without one it is not claimed.
    pub has_key_slot: bool,
    /// When the row changed last.
    pub updated_on: DateTime<Utc>,
}

/// A run in progress that a claimant has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeldClaim {
    /// The run.
    pub run_id: RunId,
    /// Its task.
    pub task_id: TaskId,
    /// The claimant.
    pub claimant: String,
    /// The host from which it claimed; empty if that is not known.
    pub host: String,
    /// When another claimant or runner may get the task, unless the claimant renews the deadline.
    pub deadline: Option<DateTime<Utc>>,
    /// When the claimant renewed the deadline last, or claimed the run.
    pub renewed_on: DateTime<Utc>,
}

impl Run {
    /// Returns what a claimant has of this run; `None` where it is not in progress or a runner has it.
    #[must_use]
    pub fn held_claim(&self) -> Option<HeldClaim> {
        let claimant = self.claimant.clone().filter(|_| self.status.is(RunStatus::Processing))?;
        Some(HeldClaim {
            run_id: self.id,
            task_id: self.task_id,
            claimant,
            host: self.host.clone(),
            deadline: self.lease_expires_on,
            renewed_on: self.updated_on,
        })
    }

    /// Returns the rule by which this failed run ruled out a retry of its task, if it did.
    #[must_use]
    pub fn no_retry_rule(&self) -> Option<&str> {
        let has_failed = self.status.is(RunStatus::Error) || self.status.is(RunStatus::Timeout);
        Some(self.decision.as_str()).filter(|rule| has_failed && rules_out_retry(rule))
    }

    /// What the handler left, as a type of Rust; `None` where it left nothing.
    ///
    /// # Errors
    /// The JSON is not that of such a value.
    pub fn results_as<T: DeserializeOwned>(&self) -> serde_json::Result<Option<T>> {
        self.results.as_deref().map(serde_json::from_str).transpose()
    }
}

/// A row of TaskQueueRunners.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Runner {
    /// Id
    pub id: RunnerId,
    /// By which operators know it.
    pub name: String,
    /// PID
    pub process_id: i64,
    /// Host
    pub host: String,
    /// Who it is, beyond its PID.
    #[serde(skip)]
    pub process_identity: String,
    /// How many runs it may execute at once; counts against the limit.
    pub slots: i32,
    /// Version of the program.
    pub version: String,
    /// When it registered.
    pub started_on: DateTime<Utc>,
    /// When it last said that it lives.
    pub heartbeat_on: DateTime<Utc>,
    /// The same moment on the clock of its host that counts from boot, in milliseconds; `None` where it is not known.
    #[serde(skip)]
    pub heartbeat_boot_ms: Option<i64>,
    /// When it ended; `None` while it lives.
    pub finished_on: Option<DateTime<Utc>>,
    /// The classes that it executes; `None` where that cannot be read.
    pub classes: Option<ServedClasses>,
}

/// What a handler wrote to one of its streams, as far as it was kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOutput {
    /// `stdout` or `stderr`.
    pub stream: String,
    /// The kept text.
    pub content: String,
    /// How many bytes the handler wrote.
    pub total_bytes: i64,
    /// Whether bytes were left out or replaced.
    pub is_lossy: bool,
}

/// A run that this process has claimed, with all that its handler gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedRun {
    /// The run.
    pub run_id: RunId,
    /// Its task.
    pub task_id: TaskId,
    /// Task class.
    pub class: TaskClass,
    /// JSON text, as stored.
    pub data: String,
    /// The fence.
    pub token: String,
    /// Number of the attempt, from 1.
    pub attempt: i32,
    /// MaxRetries of the task; `None` takes the setting.
    pub max_retries: Option<i32>,
    /// Timeout of the task, in seconds, if it has one.
    pub task_timeout_secs: Option<i32>,
    /// When the task was to be processed.
    pub planned_on: DateTime<Utc>,
    /// When it was claimed, by the database's clock.
    pub started_on: DateTime<Utc>,
}
