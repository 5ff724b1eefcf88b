//! What the oracle compares: the answers to callers, the log of the handlers, the changes in the database.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::Instant;

/// How a command ended for its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The exit status.
    Exited(i32),
    /// It was killed, at this step if one was named.
    Killed(Option<String>),
}

/// A command that changes something.
#[derive(Clone, Debug)]
pub struct Call {
    pub args: Vec<String>,
    pub pid: i64,
    pub fate: Fate,
    pub began: Instant,
    pub ended: Instant,
    /// Exit statuses that are answers, not failures.
    pub answers: Vec<i32>,
    /// The marker of the tasks that it should queue, and their number.
    pub queues: Option<(String, usize)>,
    /// The ids that it printed.
    pub ids: Vec<i64>,
    pub stdout: String,
    pub stderr: String,
}

/// A line of the log that handlers write outside the database. The lines are in the order in which they were written, because
/// the file is opened for appending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    pub is_start: bool,
    pub task_id: i64,
    pub run_id: i64,
    pub pid: i64,
    /// Seconds since boot, as text.
    pub uptime: String,
    /// The exit code of the handler.
    pub exit_code: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Task,
    Run,
    Runner,
}

/// A change that a trigger recorded. For a runner the statuses are `open` and `finished`.
#[derive(Clone, Debug)]
pub struct Change {
    pub at: i64,
    pub table: Table,
    pub id: i64,
    pub task_id: i64,
    pub old: String,
    pub new: String,
    /// Token of a run; slots of a runner.
    pub detail: String,
    /// The position of a run in the order of claims, while it is claimable: its priority and the microsecond since 1970 at which
    /// it took its place. Lower first, then by id.
    pub rank: Option<(i64, i64)>,
    /// In microseconds since 1970: when a task is planned; when a run was started, or else created.
    pub time: i64,
}

#[derive(Clone, Debug)]
pub struct TaskRow {
    pub id: i64,
    pub class: String,
    pub data: String,
    pub status: String,
    pub max_retries: i64,
    pub failed_retries: i64,
    pub attempts: i64,
    pub current_run: Option<i64>,
    /// ScheduleId and ScheduleHead; 0 and empty if there are none.
    pub schedule: i64,
    pub head: String,
    /// PlannedOn; empty if there is none.
    pub planned_on: String,
}

impl TaskRow {
    /// Returns true if it is the newest task of a schedule that is not due during a trial.
    pub fn is_planned(&self) -> bool {
        self.status == "scheduled" && ["waiting", "paused"].contains(&self.head.as_str())
    }
}

#[derive(Clone, Debug)]
pub struct RunRow {
    pub id: i64,
    pub task_id: i64,
    pub attempt: i64,
    pub status: String,
    pub token: String,
    pub process_id: i64,
    /// The identity of the process; it differs for the same PID on two hosts.
    pub process_identity: String,
    pub error_code: String,
    /// JSON; empty if there are none.
    pub results: String,
    /// What was decided at its end.
    pub decision: String,
    /// Empty for a run of a runner.
    pub claimant: String,
    /// Whether its end was requested.
    pub is_to_end: bool,
    /// CreatedOn, StartedOn, FinishedOn as strings that sort like the times; empty for NULL.
    pub times: [String; 3],
}

/// How long a class, or everything, was paused: from the end of the command that paused it to the begin of the one that resumed
/// it.
#[derive(Clone, Debug)]
pub struct Pause {
    pub class: Option<String>,
    pub from: Instant,
    pub until: Instant,
    /// The same in microseconds since 1970, like the times of a [`Change`].
    pub micros: RangeInclusive<i64>,
}

/// All records of one trial, after all work was completed.
#[derive(Clone, Debug, Default)]
pub struct Records {
    pub calls: Vec<Call>,
    pub effects: Vec<Effect>,
    pub audit: Vec<Change>,
    pub tasks: Vec<TaskRow>,
    pub runs: Vec<RunRow>,
    /// Tasks with their keys.
    pub keys: Vec<(i64, String)>,
    /// Tasks, each with one of its prerequisites.
    pub dependencies: Vec<(i64, i64)>,
    pub open_runners: i64,
    pub runner_limit: i64,
    /// Limits of runs at once, by class.
    pub class_limits: HashMap<String, i64>,
    /// Limits of starts in a number of seconds, by class.
    pub class_rates: HashMap<String, (usize, i64)>,
    pub pauses: Vec<Pause>,
    /// The transitions that the program itself stored, by the setting: kind, task and run.
    pub transitions: Option<Vec<(String, i64, i64)>>,
    /// The limit keys of the tasks that have one. Each allows one run at a time.
    pub limit_keys: HashMap<i64, String>,
    /// Slots in use when the trial began.
    pub slots_before: i64,
    /// Processes with the token of a run of this trial.
    pub survivors: Vec<String>,
    /// Spool files with records, and held locks.
    pub left_files: Vec<String>,
    /// The errors in the engine's own check of its file.
    pub integrity: Vec<String>,
    /// Tasks that an operator retried, or that were replaced.
    pub retried: Vec<i64>,
    /// Tasks that were cancelled, or whose run was requested to end.
    pub cancelled: Vec<i64>,
    /// Classes whose handlers fail by design.
    pub failing_classes: Vec<String>,
    /// Classes with coprocesses.
    pub coprocess_classes: Vec<String>,
    /// Whether commands may fail, because their system calls did.
    pub may_fail: bool,
    /// Runners whose lease was ended by force, so that a rescue of their runs is correct.
    pub expired: Vec<i64>,
    /// Runners that were killed or stopped by other means than a signal to the command itself.
    pub broken: Vec<i64>,
    /// Whether the end of a handler is recorded, or its refusal, even though commands may fail.
    pub outcomes_are_kept: bool,
    /// Runs whose late result was refused.
    pub late_runs: Vec<i64>,
    /// Runners that lost their runs to another host while they were stopped: what their handlers do until they continue cannot
    /// be seen from any host.
    pub may_overlap: Vec<i64>,
    /// Processes that ended on their own, without an error, and were still registered as runners after that.
    pub stayed: Vec<i64>,
    /// Exhausted tasks that were reported, or will be.
    pub told: Vec<i64>,
    /// Whether runs may be claimed out of order, because the caller names them.
    pub is_order_free: bool,
}

impl Records {
    /// Returns true if the claimant of this run had rejected the task before it claimed the run. The order of their ids does
    /// not show that: an earlier run may have been created later.
    pub fn had_rejected(&self, task_id: i64, claimed: &RunRow) -> bool {
        let is_before = |run: &RunRow| run.id != claimed.id && run.times[2] <= claimed.times[1];
        self.runs.iter().any(|run| {
            run.task_id == task_id && run.error_code == "rejected" && run.claimant == claimed.claimant && is_before(run)
        })
    }

    pub fn runs_by_task(&self) -> HashMap<i64, Vec<&RunRow>> {
        let mut runs: HashMap<i64, Vec<&RunRow>> = HashMap::new();
        for run in &self.runs {
            runs.entry(run.task_id).or_default().push(run);
        }
        runs
    }

    /// Returns true if a run of this process may have been rescued.
    pub fn was_broken(&self, pid: i64) -> bool {
        self.may_fail && !self.outcomes_are_kept
            || self.expired.contains(&pid)
            || self.broken.contains(&pid)
            || self.was_killed(pid)
    }

    fn was_killed(&self, pid: i64) -> bool {
        self.calls.iter().any(|call| call.pid == pid && matches!(call.fate, Fate::Killed(_)))
    }

    /// Returns true if the process has several slots.
    pub fn is_worker(&self, pid: i64) -> bool {
        self.calls.iter().any(|call| call.pid == pid && call.args.iter().any(|arg| arg == "work"))
    }

    /// Returns the slots of the largest runner.
    pub fn most_slots(&self) -> usize {
        let slots = |call: &Call| call.args.iter().skip_while(|arg| *arg != "--slots").nth(1)?.parse().ok();
        self.calls.iter().filter_map(slots).max().unwrap_or(1)
    }

    pub fn task(&self, id: i64) -> Option<&TaskRow> {
        self.tasks.iter().find(|task| task.id == id)
    }

    /// Returns true if a coprocess handled the run.
    pub fn is_of_coprocess(&self, run: &RunRow) -> bool {
        self.task(run.task_id).is_some_and(|task| self.coprocess_classes.contains(&task.class))
    }

    /// Returns the step at which the process was killed.
    pub fn killed_at(&self, pid: i64) -> Option<&str> {
        self.calls.iter().find(|call| call.pid == pid).and_then(|call| match &call.fate {
            Fate::Killed(Some(label)) => Some(label.as_str()),
            _ => None,
        })
    }
}
