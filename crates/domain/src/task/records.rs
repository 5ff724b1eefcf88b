//! Tasks, runs and runners as the library returns them.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};

use super::ids::{RunId, RunnerId, TaskId};
use super::task_class::TaskClass;
use super::trace::Trace;
use crate::run::decision::rules_out_retry;
use crate::run::retention::Retention;
use crate::run::status::{RunStatus, ScheduleStatus, Stored, TaskStatus};
use crate::served::ServedClasses;
use crate::settings::Settings;
use crate::text::unreadable::Unreadable;
use crate::time::recurrence::Recurrence;

/// A row of TaskQueue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Task {
    /// Id
    pub id: TaskId,
    /// When it was queued.
    pub queued_on: DateTime<Utc>,
    /// Who queued it.
    pub queued_by: String,
    /// When it is to be processed, as set when it was queued or edited.
    pub scheduled_on: DateTime<Utc>,
    /// When its next attempt is due, after one that failed or was released; `None` means ScheduledOn.
    pub next_attempt_on: Option<DateTime<Utc>>,
    /// From when no attempt may start; `None` means that it does not expire.
    pub start_before: Option<DateTime<Utc>>,
    /// Task class
    pub class: Stored<TaskClass>,
    /// JSON text.
    pub data: String,
    /// LastStatus
    pub status: Stored<TaskStatus>,
    /// Failed attempts before it is exhausted; `None` uses the setting at the time of a failure.
    pub max_retries: Option<i32>,
    /// Set when it is exhausted by the settings: the number of failed attempts they allowed at that time.
    pub retry_limit: Option<i32>,
    /// Failed attempts since the last success.
    pub failed_retries: i32,
    /// Attempts that ended, without released ones.
    pub attempts: i32,
    /// Higher first.
    pub priority: i32,
    /// Seconds; `None` uses the timeout of the class or of the settings.
    pub timeout_secs: Option<i32>,
    /// Dependencies that have not succeeded yet.
    pub waiting_for: i32,
    /// The open run.
    pub current_run_id: Option<RunId>,
    /// The waits before its retries, as text; `None` uses those of the class or of the settings.
    pub backoff: Option<String>,
    /// Crashes of its handler or its runner since the last success.
    pub crashes: i32,
    /// When it was quarantined: it is not retried, because it crashed too often.
    pub quarantined_on: Option<DateTime<Utc>>,
    /// Its schedule, if it belongs to one.
    pub schedule: Option<TaskSchedule>,
    /// When the row last changed.
    pub updated_on: DateTime<Utc>,
    /// A key that no other live task of its class may have.
    pub unique_key: Option<String>,
    /// Until when the key stays taken, even if the task ends sooner.
    pub unique_until: Option<DateTime<Utc>>,
    /// The limit key, if any: only a limited number of runs with the same key are processed at once.
    pub limit_key: Option<String>,
    /// A tag by which claimants and selections find it, such as an account.
    pub tag: Option<String>,
    /// A name that tells people what it does; not unique.
    pub name: Option<String>,
    /// The task whose handler queued this one.
    pub parent_id: Option<TaskId>,
    /// Seconds to keep it after it has finished, 0 for no limit; `None` uses the class or the setting.
    pub keep_secs: Option<i32>,
    /// The same value of its class, as of the last end of an attempt.
    pub class_keep_secs: Option<i32>,
    /// Seconds to keep the results of each run after its end, with the same special values.
    pub keep_results_secs: Option<i32>,
    /// When it may be deleted, if it has finished and it or its class states how long it is kept.
    pub expires_on: Option<DateTime<Utc>>,
    /// Its metadata, the text of a JSON object; `None` if it has none.
    pub meta: Option<String>,
    /// The columns that cannot be read. Their fields hold the default of their type, or for text a printable form. A task with
    /// unreadable columns is set aside when it is claimed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
}

/// The schedule columns of a row of TaskQueue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskSchedule {
    /// The id of the first row of the chain.
    pub id: TaskId,
    /// The cron expression, as stored.
    pub every: String,
    /// The name of the zone, as stored.
    pub time_zone: String,
    /// How it catches up, as stored.
    pub catch_up: String,
    /// Whether its tasks replace each other, as stored.
    pub overlap: String,
    /// The planned time of this row; `None` until `create-runs` has processed a row that was inserted without one.
    pub planned_on: Option<DateTime<Utc>>,
    /// The position of the row in the chain.
    pub status: Stored<ScheduleStatus>,
}

impl TaskSchedule {
    /// Returns the parsed schedule.
    ///
    /// # Errors
    /// What cannot be parsed, as a sentence without a full stop: rows inserted by SQL can contain anything.
    pub fn recurrence(&self) -> Result<Recurrence, String> {
        Recurrence::parse(&self.every, &self.time_zone, &self.catch_up)?.with_overlap(&self.overlap)
    }
}

impl Task {
    /// Returns the data deserialized into `T`.
    ///
    /// # Errors
    /// The JSON does not deserialize into `T`.
    pub fn data_as<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(&self.data)
    }

    /// Returns the time from its planned time, or without one from `scheduled_on`, to `start_before`. Returns `None` if it does not
    /// expire, or expires before.
    #[must_use]
    pub fn start_window(&self) -> Option<TimeDelta> {
        let planned_on = self.schedule.as_ref().and_then(|schedule| schedule.planned_on).unwrap_or(self.scheduled_on);
        Some(self.start_before? - planned_on).filter(|window| *window > TimeDelta::zero())
    }

    /// Returns the planned time of this task of a schedule if it is moved up to `to`, before its planned time. That is `to`
    /// itself, so that the next task gets the original planned time.
    #[must_use]
    pub fn planned_on_if_moved_up(&self, to: DateTime<Utc>, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let schedule = self.schedule.as_ref()?;
        let goes_on = schedule.status.is(ScheduleStatus::Active) || schedule.status.is(ScheduleStatus::Paused);
        let moved = to.max(now);
        schedule.planned_on.is_some_and(|planned_on| goes_on && moved < planned_on).then_some(moved)
    }

    /// Returns the metadata deserialized into `T`; without metadata, that of `{}`.
    ///
    /// # Errors
    /// The JSON does not deserialize into `T`.
    pub fn meta_as<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.meta.as_deref().unwrap_or("{}"))
    }

    /// Returns until when it is kept, as stated by the task, its class or else the settings. Returns `None` if it has not
    /// finished or is kept without a limit.
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

    /// Returns when a finished task ended, or until when it keeps its unique key if that is later.
    #[must_use]
    pub fn over_on(&self) -> DateTime<Utc> {
        self.unique_until.map_or(self.updated_on, |until| until.max(self.updated_on))
    }

    /// Returns the time from which it may be processed.
    #[must_use]
    pub fn due_from(&self) -> DateTime<Utc> {
        self.next_attempt_on.unwrap_or(self.scheduled_on)
    }

    /// Returns the failed attempts before it is exhausted, if its row states them.
    #[must_use]
    pub fn known_retry_limit(&self) -> Option<i32> {
        self.retry_limit.or(self.max_retries)
    }

    /// Returns true if it has failed and no retry is left.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        (self.status.is(TaskStatus::Failed) || self.status.is(TaskStatus::Timeout))
            && self.known_retry_limit().is_some_and(|limit| self.failed_retries >= limit)
    }

    /// Returns true if it is settled: it will not run again unless retried.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let is_done = self.status.known().is_some_and(|status| status.is_done());
        is_done || self.is_exhausted() || (self.quarantined_on.is_some() && !self.status.is(TaskStatus::Processing))
    }

    /// Returns true if its unique key, if it has one, is taken. A key is taken until the task has settled and its last run has
    /// ended. The waiting run of a cancelled or expired task does not count, because it will not run. A key with a window stays taken until
    /// a later operation finds the window expired and removes it.
    #[must_use]
    pub fn has_its_key(&self) -> bool {
        let is_ended = self.status.is(TaskStatus::Cancelled) || self.status.is(TaskStatus::Expired);
        let has_run = self.current_run_id.is_some() && !is_ended;
        !self.is_settled() || has_run || self.unique_until.is_some()
    }
}

/// A row of TaskQueueRuns, without its captured output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Run {
    /// Id
    pub id: RunId,
    /// The task of which it is an attempt.
    pub task_id: TaskId,
    /// Task class, copied from the task.
    pub class: Stored<TaskClass>,
    /// Number of the attempt within its task, from 1; the number of a released run is reused.
    pub attempt: i32,
    /// Status
    pub status: Stored<RunStatus>,
    /// When it was created.
    pub created_on: DateTime<Utc>,
    /// When a runner claimed it.
    pub started_on: Option<DateTime<Utc>>,
    /// Progress from 0 to 100, as the handler reported.
    pub percents_completed: i32,
    /// The last progress message of the handler.
    pub progress_message: String,
    /// When it ended, whatever the outcome.
    pub finished_on: Option<DateTime<Utc>>,
    /// JSON text of the results that the handler returned.
    pub results: Option<String>,
    /// The error code; empty unless it failed.
    pub error_code: String,
    /// The error message; empty unless it failed.
    pub error_message: String,
    /// The decision at its end, and the rule that led to it.
    pub decision: String,
    /// PID of the runner that executes or executed it.
    pub process_id: Option<i64>,
    /// The runner's row; also `None` for a claimant's run.
    pub runner_id: Option<RunnerId>,
    /// The claimant that claimed it; `None` for a run of a runner.
    pub claimant: Option<String>,
    /// The host of the runner or claimant.
    pub host: String,
    /// The identity of the runner: boot, PID namespace, PID, start ticks.
    #[serde(skip)]
    pub process_identity: String,
    /// The fencing token: every write for the run must present it.
    #[serde(skip)]
    pub token: Option<String>,
    /// When any runner may take the run from its runner.
    pub lease_expires_on: Option<DateTime<Utc>>,
    /// PID of the handler.
    pub handler_process_id: Option<i64>,
    /// The identity of the handler process.
    #[serde(skip)]
    pub handler_identity: String,
    /// Processor time that its program used, in milliseconds; in JSON, in seconds. `None` if it was not measured.
    #[serde(rename = "cpu_secs", serialize_with = "msecs_as_secs")]
    pub cpu_msecs: Option<i64>,
    /// The most memory that one process of its program had resident; `None` if it was not measured.
    pub peak_memory_bytes: Option<i64>,
    /// When its cancellation was requested, if it was.
    pub cancel_requested_on: Option<DateTime<Utc>>,
    /// The reason, or who requested it.
    pub cancel_reason: String,
    /// The limit key that its task had when the run was created, if any.
    pub limit_key: Option<String>,
    /// Whether it has, or had, a slot of that key: it is not claimed without one.
    pub has_key_slot: bool,
    /// When the row last changed.
    pub updated_on: DateTime<Utc>,
}

fn msecs_as_secs<S: Serializer>(msecs: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    let secs = |msecs: i64| Duration::from_millis(msecs.unsigned_abs()).as_secs_f64();
    msecs.map(secs).serialize(serializer)
}

/// A run in progress that a claimant has claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeldClaim {
    /// The run.
    pub run_id: RunId,
    /// Its task.
    pub task_id: TaskId,
    /// The claimant.
    pub claimant: String,
    /// The host from which it was claimed; empty if unknown.
    pub host: String,
    /// When another claimant or runner may get the task, unless the claimant renews the deadline.
    pub deadline: Option<DateTime<Utc>>,
    /// When the claimant last renewed the deadline, or claimed the run.
    pub renewed_on: DateTime<Utc>,
}

impl Run {
    /// Returns the claim of a claimant on this run; `None` if the run is not in progress or belongs to a runner.
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

    /// Returns the rule that ruled out a retry after this failed run, if any.
    #[must_use]
    pub fn no_retry_rule(&self) -> Option<&str> {
        let has_failed = self.status.is(RunStatus::Error) || self.status.is(RunStatus::Timeout);
        Some(self.decision.as_str()).filter(|rule| has_failed && rules_out_retry(rule))
    }

    /// Returns the results of the handler deserialized into `T`; `None` if it returned none.
    ///
    /// # Errors
    /// The JSON does not deserialize into `T`.
    pub fn results_as<T: DeserializeOwned>(&self) -> serde_json::Result<Option<T>> {
        self.results.as_deref().map(serde_json::from_str).transpose()
    }
}

/// A row of TaskQueueRunners.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Runner {
    /// Id
    pub id: RunnerId,
    /// The name by which operators refer to it.
    pub name: String,
    /// PID
    pub process_id: i64,
    /// Host
    pub host: String,
    /// The identity of its process.
    #[serde(skip)]
    pub process_identity: String,
    /// How many runs it may execute at once; counts against the runner limit.
    pub slots: i32,
    /// Version of the program.
    pub version: String,
    /// When it registered.
    pub started_on: DateTime<Utc>,
    /// When it last reported that it was alive.
    pub heartbeat_on: DateTime<Utc>,
    /// The same moment on its host's clock since boot, in milliseconds; `None` if unknown.
    #[serde(skip)]
    pub heartbeat_boot_ms: Option<i64>,
    /// When it ended; `None` while it is alive.
    pub finished_on: Option<DateTime<Utc>>,
    /// The classes that it executes; `None` if the column cannot be read.
    pub classes: Option<ServedClasses>,
}

/// The captured output of a handler on one stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOutput {
    /// `stdout` or `stderr`.
    pub stream: String,
    /// The captured text.
    pub content: String,
    /// How many bytes the handler wrote.
    pub total_bytes: i64,
    /// Whether bytes were omitted or replaced.
    pub is_lossy: bool,
}

/// A run that this process has claimed, with all that its handler receives.
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
    /// The fencing token.
    pub token: String,
    /// Number of the attempt, from 1.
    pub attempt: i32,
    /// MaxRetries of the task; `None` uses the setting.
    pub max_retries: Option<i32>,
    /// Timeout of the task, in seconds, if it has one.
    pub task_timeout_secs: Option<i32>,
    /// When the task was to be processed.
    pub planned_on: DateTime<Utc>,
    /// When it was claimed, by the database's clock.
    pub started_on: DateTime<Utc>,
    /// When it was due, by the same clock; `None` if that is not stored.
    pub due_on: Option<DateTime<Utc>>,
    /// The trace context and the correlation id of the task.
    pub trace: Trace,
}

impl ClaimedRun {
    /// Returns how long it waited from the time at which it was due; `None` if that is not known, or if it was started before.
    #[must_use]
    pub fn waited(&self) -> Option<Duration> {
        (self.started_on - self.due_on?).to_std().ok()
    }
}

impl Settings {
    /// Returns how many attempts of this task may fail, or might when it was exhausted.
    #[must_use]
    pub fn retries_of(&self, task: &Task) -> i32 {
        task.retry_limit.unwrap_or_else(|| self.allowed_retries(task.max_retries))
    }
}
