//! The reasons for the state of a task, as `status` and `explain` show them, and when each one passes on its own.

use chrono::{DateTime, Utc};
use serde::Serialize;

use taskqueue_domain::limits::limit::Rate;
use taskqueue_domain::limits::pause::Pause;
use taskqueue_domain::task::dependencies::LinkedTask;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_store::Counted;

/// Why a task is in its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// A runner or claimant processes it.
    Running {
        /// PID of the runner.
        process_id: Option<i64>,
        /// Host of the runner.
        host: String,
        /// The claimant that processes it, if it is no runner.
        #[serde(skip_serializing_if = "Option::is_none")]
        claimant: Option<String>,
        /// When the lease of the claimant expires unless it is renewed; `None` for a runner's run.
        #[serde(skip_serializing_if = "Option::is_none")]
        deadline: Option<DateTime<Utc>>,
    },
    /// Its runner or claimant will not end the run; the next `create-runs` rescues it.
    Lost {
        /// `runner-died`, `claimant-died` or `lease-expired`.
        code: &'static str,
        /// Why, as text.
        message: String,
    },
    /// Its run waits for a runner.
    WaitsForRunner,
    /// Its run waits, and there is no live runner.
    NoRunner,
    /// Its run waits, and no live runner executes its class.
    NoRunnerForClass {
        /// How many runners are live.
        runners: usize,
    },
    /// Its run waits, no live runner executes its class, and the limit allows no further runner.
    RunnerLimitReached {
        /// The slots of the live runners.
        in_use: i64,
        /// TaskQueueRunnerLimit.
        limit: i64,
    },
    /// Its run waits, and the runners for its class are paused, drained or stopped.
    RunnersPaused {
        /// The first of these orders.
        pause: Box<Pause>,
    },
    /// Its run waits, and all slots of the runners for its class are in use.
    RunnersBusy {
        /// How many slots.
        slots: i64,
        /// How many runs of its class are claimed before it.
        before: Counted,
    },
    /// Its run waits behind other runs.
    WaitsItsTurn {
        /// How many runs of its class are claimed before it.
        before: Counted,
    },
    /// Its run waits, and neither this host nor a live runner elsewhere can execute its class.
    NoHandlerHere,
    /// No runner handles its class, but claimants do: they rejected this task, or one started the newest run of the class.
    WaitsForClaimant {
        /// The claimants that rejected it and are never offered it again.
        rejected_by: Vec<String>,
    },
    /// Its run waits, and its class is held on this host.
    ClassHeld {
        /// Why.
        why: String,
        /// When the hold ends.
        until: DateTime<Utc>,
    },
    /// It waits, and a pause prevents claims.
    Paused {
        /// The pause.
        pause: Box<Pause>,
    },
    /// Its run waits, and the limit of its class is reached.
    ClassIsFull {
        /// The limit.
        max_running: i32,
    },
    /// Its run waits, and the rate of its class is reached.
    RateReached {
        /// The limit.
        rate: Rate,
        /// When the next run of the class may start.
        next_on: DateTime<Utc>,
    },
    /// Its run waits, and the slots of its limit key are taken or go to runs before it.
    KeyIsFull {
        /// The key.
        key: String,
        /// The limit.
        max_running: i32,
        /// Runs with this key in progress.
        running: i64,
        /// Tasks whose runs have the slots, in progress or first to start; not all of many.
        holders: Vec<TaskId>,
    },
    /// It is due, and `create-runs` has not created its run yet.
    WaitsForCreateRuns,
    /// It is not due yet.
    NotYet {
        /// When it is due.
        on: DateTime<Utc>,
        /// The error of the previous attempt, if that failed.
        after_error: Option<String>,
    },
    /// Dependencies have not succeeded.
    WaitsForDependencies {
        /// How many.
        count: i32,
        /// The first of them.
        on: Vec<LinkedTask>,
    },
    /// It is the first task of a schedule whose first time is not known yet.
    NotPlanned {
        /// Why `create-runs` cannot determine it, if so.
        problem: Option<String>,
    },
    /// Its schedule is paused.
    SchedulePaused,
    /// It crashed too often, and is not retried until an operator retries it.
    Quarantined {
        /// Crashes since the last success.
        crashes: i32,
        /// The error of the last attempt.
        error: String,
    },
    /// A column of its row cannot be read, so it is set aside. It runs again when the column was repaired and the task is
    /// retried.
    Unreadable {
        /// The column.
        column: &'static str,
        /// Its content, in a form that is safe to display.
        found: String,
    },
    /// It failed, and is not retried.
    Exhausted {
        /// The error of the last attempt.
        error: String,
        /// Failed attempts since its last success or restart.
        failed_attempts: i32,
        /// The rule by which the last attempt ruled out a retry; `None` if the retries are used up.
        no_retry_rule: Option<String>,
    },
    /// It succeeded.
    Done,
    /// It was cancelled.
    Cancelled,
    /// The time before which an attempt had to start has passed.
    Expired {
        /// That time; `None` if it was removed since.
        #[serde(skip_serializing_if = "Option::is_none")]
        on: Option<DateTime<Utc>>,
    },
    /// Its status is unknown to this version.
    UnknownStatus,
}

impl Reason {
    /// Returns when the reason passes on its own, or is checked again, if that is known.
    #[must_use]
    pub fn next_on(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::NotYet { on, .. } | Self::RateReached { next_on: on, .. } | Self::ClassHeld { until: on, .. } => {
                Some(*on)
            }
            Self::Paused { pause } | Self::RunnersPaused { pause } => pause.until,
            Self::Running { deadline, .. } => *deadline,
            _ => None,
        }
    }
}
