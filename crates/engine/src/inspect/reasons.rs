//! The reasons for which a task is where it is, as `status` and `explain` show them, and when each passes by itself.

use chrono::{DateTime, Utc};
use serde::Serialize;

use taskqueue_domain::pause::Pause;
use taskqueue_domain::run::limits::Rate;
use taskqueue_domain::task::dependencies::LinkedTask;
use taskqueue_store::Counted;

/// Why a task is where it is; the answer to the question that is asked most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// A runner works on it.
    Running {
        /// PID of the runner.
        process_id: Option<i64>,
        /// Host of the runner.
        host: String,
        /// The claimant that works on it, if it is no runner.
        #[serde(skip_serializing_if = "Option::is_none")]
        claimant: Option<String>,
        /// When another claimant or runner may get the task, unless the claimant renews the deadline; none of a runner's run.
        #[serde(skip_serializing_if = "Option::is_none")]
        deadline: Option<DateTime<Utc>>,
    },
    /// A runner or a claimant took its run and will not end it any more; the next `create-runs` takes it back.
    Lost {
        /// `runner-died`, `claimant-died` or `lease-expired`.
        code: &'static str,
        /// Why, in words.
        message: String,
    },
    /// Its run waits for a runner.
    WaitsForRunner,
    /// Its run waits, and no runner lives.
    NoRunner,
    /// Its run waits, and none of the runners that live executes its class.
    NoRunnerForClass {
        /// How many live.
        runners: usize,
    },
    /// Its run waits, no runner that lives executes its class, and there is no room for another one.
    RunnerLimitReached {
        /// Slots of those that live.
        in_use: i64,
        /// TaskQueueRunnerLimit.
        limit: i64,
    },
    /// Its run waits, and the runners that execute its class are paused, drained or stopped.
    RunnersPaused {
        /// The first of these orders.
        pause: Box<Pause>,
    },
    /// Its run waits, and all slots of the runners that execute its class have work.
    RunnersBusy {
        /// How many slots.
        slots: i64,
        /// Runs of its class that are claimed before it.
        before: Counted,
    },
    /// Its run waits behind others.
    WaitsItsTurn {
        /// Runs of its class that are claimed before it.
        before: Counted,
    },
    /// Its run waits, nobody here can execute its class, and no runner elsewhere that lives.
    NoHandlerHere,
    /// No runner handles its class, and claimants do: they rejected this task, or one started the newest run of the class.
    WaitsForClaimant {
        /// The claimants that rejected it and are never offered it again.
        rejected_by: Vec<String>,
    },
    /// Its run waits, and the class is held on this host.
    ClassHeld {
        /// Why.
        why: String,
        /// Until then.
        until: DateTime<Utc>,
    },
    /// It waits, and an operator keeps it from being claimed.
    Paused {
        /// Who paused what, how, why, since when and until when.
        pause: Box<Pause>,
    },
    /// Its run waits, and as many runs of its class are being processed as may be.
    ClassIsFull {
        /// The limit.
        max_running: i32,
    },
    /// Its run waits, and as many runs of its class have started as may in this time.
    RateReached {
        /// The limit.
        rate: Rate,
        /// When the next run of the class may start.
        next_on: DateTime<Utc>,
    },
    /// Its run waits, and as many with its limit key as may be processed at once are before it.
    KeyIsFull {
        /// The key.
        key: String,
        /// The limit.
        max_running: i32,
        /// Those of them that are being processed.
        running: i64,
    },
    /// It is due and waits for `create-runs`.
    WaitsForCreateRuns,
    /// Its time has not come.
    NotYet {
        /// When it comes.
        on: DateTime<Utc>,
        /// Error of the attempt before, if it failed.
        after_error: Option<String>,
    },
    /// Dependencies have not succeeded.
    WaitsForDependencies {
        /// How many.
        count: i32,
        /// The first of them.
        on: Vec<LinkedTask>,
    },
    /// It is the first task of a schedule whose first time is not known.
    NotPlanned {
        /// What keeps `create-runs` from finding it, if anything does.
        problem: Option<String>,
    },
    /// Its schedule is paused.
    SchedulePaused,
    /// It crashed too often: nobody tries it again before an operator says so.
    Quarantined {
        /// Crashes since the last success.
        crashes: i32,
        /// Error of the last attempt.
        error: String,
    },
    /// A column of its row cannot be read: it is set aside, and runs once the column is mended and it is retried.
    Unreadable {
        /// Which column.
        column: &'static str,
        /// What it holds, in a form that is safe to show.
        found: String,
    },
    /// It failed, and is not retried.
    Exhausted {
        /// Error of the last attempt.
        error: String,
        /// Failed attempts since its last success or its last new start.
        failed_attempts: i32,
        /// The rule by which the last attempt ruled out a retry; none where it has failed as often as it may.
        no_retry_rule: Option<String>,
    },
    /// It is done.
    Done,
    /// It was cancelled.
    Cancelled,
    /// Its status is one that this version does not know.
    UnknownStatus,
}

impl Reason {
    /// When it passes by itself, or is looked at again, where that is known.
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
