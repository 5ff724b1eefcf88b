//! What the oracle compares: what callers were told, what handlers did, what the database saw.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::Instant;

/// How a command ended, as its caller saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Exit status.
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
    /// What marks the tasks that it was to queue, and how many of them.
    pub queues: Option<(String, usize)>,
    /// The ids that it printed.
    pub ids: Vec<i64>,
    pub stdout: String,
    pub stderr: String,
}

/// A line of the log that handlers write outside the database. The order of the lines is the order in which they were
/// written: the file is opened for appending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    pub is_start: bool,
    pub task_id: i64,
    pub run_id: i64,
    pub pid: i64,
    /// Seconds since boot, as text.
    pub uptime: String,
    /// With which the handler is about to exit.
    pub exit_code: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Task,
    Run,
    Runner,
}

/// A change that a trigger saw. For a runner the statuses are `open` and `finished`.
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
    /// The place of a run in the order of claims, while it can be claimed: lower first, then by id.
    pub rank: Option<i64>,
    /// In microseconds since 1970: when a task is to be processed; when a run was started, or else created.
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
    /// ScheduleId and ScheduleHead; 0 and empty where there are none.
    pub schedule: i64,
    pub head: String,
    /// PlannedOn; empty where there is none.
    pub planned_on: String,
}

impl TaskRow {
    /// Whether it is the newest task of a schedule, and nothing is to happen to it during a trial.
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
    /// Of the process; of the same PID in two places it differs.
    pub process_identity: String,
    pub error_code: String,
    /// JSON; empty where there are none.
    pub results: String,
    /// Empty for a run of a runner.
    pub claimant: String,
    /// Somebody wanted it to end.
    pub is_to_end: bool,
    /// CreatedOn, StartedOn, FinishedOn as texts that sort like the times; empty for NULL.
    pub times: [String; 3],
}

/// For how long a class, or everything, was paused, from the end of the command that did it to the begin of the one that
/// took it back.
#[derive(Clone, Debug)]
pub struct Pause {
    pub class: Option<String>,
    pub from: Instant,
    pub until: Instant,
    /// The same in microseconds since 1970, as [`Change`] has its times.
    pub micros: RangeInclusive<i64>,
}

/// Everything about one trial, after it came to rest.
#[derive(Clone, Debug, Default)]
pub struct Records {
    pub calls: Vec<Call>,
    pub effects: Vec<Effect>,
    pub audit: Vec<Change>,
    pub tasks: Vec<TaskRow>,
    pub runs: Vec<RunRow>,
    /// Tasks with the key that each has.
    pub keys: Vec<(i64, String)>,
    /// Tasks, each with one that must succeed before it runs.
    pub dependencies: Vec<(i64, i64)>,
    pub open_runners: i64,
    pub runner_limit: i64,
    /// Runs at once, by class.
    pub class_limits: HashMap<String, i64>,
    /// Starts in so many seconds, by class.
    pub class_rates: HashMap<String, (usize, i64)>,
    pub pauses: Vec<Pause>,
    /// What the program itself kept of transitions, by the setting: kind, task and run.
    pub transitions: Option<Vec<(String, i64, i64)>>,
    /// The limit keys of the tasks that have one. Each is one at a time.
    pub limit_keys: HashMap<i64, String>,
    /// Slots that were taken when the trial began.
    pub slots_before: i64,
    /// Processes that carry the token of a run of this trial.
    pub survivors: Vec<String>,
    /// Files of the spool that hold something, and locks that somebody holds.
    pub left_files: Vec<String>,
    /// What the engine's own check of its file says, if it is not well.
    pub integrity: Vec<String>,
    /// Tasks whose failures an operator forgave, or that were replaced.
    pub retried: Vec<i64>,
    /// Tasks that were over and that somebody wanted to run again.
    pub requeued: Vec<i64>,
    /// Tasks that somebody cancelled, or whose run somebody asked to end.
    pub cancelled: Vec<i64>,
    /// Handlers of these classes fail by design.
    pub failing_classes: Vec<String>,
    /// Handlers of these classes are coprocesses.
    pub coprocess_classes: Vec<String>,
    /// Commands may fail: their system calls did.
    pub may_fail: bool,
    /// Runners whose lease was ended by force: whoever rescues their runs is right.
    pub expired: Vec<i64>,
    /// Runners that were killed or stopped by other means than a signal to the command itself.
    pub broken: Vec<i64>,
    /// Although commands may fail, what a handler finished is recorded, or its refusal is.
    pub outcomes_are_kept: bool,
    /// Runs of which a late result was refused.
    pub late_runs: Vec<i64>,
    /// Runners that lost their runs to another host while they were stopped: what their handlers do until they go on can be
    /// seen from nowhere.
    pub may_overlap: Vec<i64>,
    /// Processes that ended by themselves, and well, and were registered as runners after that.
    pub stayed: Vec<i64>,
    /// Tasks of which somebody was told that they are exhausted, or will be.
    pub told: Vec<i64>,
    /// Runs that were claimed out of order by order of the caller.
    pub is_order_free: bool,
}

impl Records {
    /// Whether the claimant of this run had rejected the task before it claimed the run. The order of their ids says nothing
    /// about that: what stands before it may have been created after it.
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

    /// Whether a run of this process may have been taken from it.
    pub fn was_broken(&self, pid: i64) -> bool {
        self.may_fail && !self.outcomes_are_kept
            || self.expired.contains(&pid)
            || self.broken.contains(&pid)
            || self.was_killed(pid)
    }

    fn was_killed(&self, pid: i64) -> bool {
        self.calls.iter().any(|call| call.pid == pid && matches!(call.fate, Fate::Killed(_)))
    }

    /// Whether the process has several slots.
    pub fn is_worker(&self, pid: i64) -> bool {
        self.calls.iter().any(|call| call.pid == pid && call.args.iter().any(|arg| arg == "work"))
    }

    /// The slots of the largest runner.
    pub fn most_slots(&self) -> usize {
        let slots = |call: &Call| call.args.iter().skip_while(|arg| *arg != "--slots").nth(1)?.parse().ok();
        self.calls.iter().filter_map(slots).max().unwrap_or(1)
    }

    pub fn task(&self, id: i64) -> Option<&TaskRow> {
        self.tasks.iter().find(|task| task.id == id)
    }

    /// Whether a coprocess handled the run.
    pub fn is_of_coprocess(&self, run: &RunRow) -> bool {
        self.task(run.task_id).is_some_and(|task| self.coprocess_classes.contains(&task.class))
    }

    /// The step at which the process was killed.
    pub fn killed_at(&self, pid: i64) -> Option<&str> {
        self.calls.iter().find(|call| call.pid == pid).and_then(|call| match &call.fate {
            Fate::Killed(Some(label)) => Some(label.as_str()),
            _ => None,
        })
    }
}
