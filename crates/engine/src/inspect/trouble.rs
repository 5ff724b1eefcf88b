//! A problem that `doctor` finds: its parts, how bad it is, and what it stops.

use std::path::PathBuf;

use serde::Serialize;

use crate::inspect::diagnosis::conditions::Reason;
use crate::inspect::diagnosis::hung::HungRun;
use crate::inspect::diagnosis::standstill::{Standstill, StandstillCause};
use taskqueue_domain::limits::pause::Pause;
use taskqueue_domain::monitoring::thresholds::Level;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_store::{Counted, Symptom};

/// A problem.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "trouble", rename_all = "snake_case")]
pub enum Trouble {
    /// A symptom of the server or the file.
    Store(Symptom),
    /// The database cannot be opened, so its tables were not examined.
    StoreClosed {
        /// The address of the store.
        store: String,
        /// Why.
        error: String,
    },
    /// A part could not be examined.
    Unexamined {
        /// The part.
        part: &'static str,
        /// Why.
        error: String,
    },
    /// Tasks are due and no process creates their runs.
    NothingCreatesRuns {
        /// How many.
        due: Counted,
        /// For how long the first one has been due.
        oldest_secs: i64,
    },
    /// Tasks are due or runs wait, and all of them are blocked by a pause, a missing runner or taken slots.
    Standstill {
        /// What is affected, and why.
        standstill: Standstill,
    },
    /// Runs wait, and no runner claims them.
    NothingRuns {
        /// The task of the first run.
        task_id: TaskId,
        /// Its class.
        class: String,
        /// Why, as `explain` shows it.
        why: Reason,
    },
    /// Runs wait for the slots of a class or of a limit key, and no run that has one of them ends or reports.
    HungRuns {
        /// The class of the first waiting run.
        class: String,
        /// The limit key whose slots are taken; `None` if it is the limit of the class.
        key: Option<String>,
        /// The limit.
        max_running: i32,
        /// The runs that have the slots.
        hung: Vec<HungRun>,
    },
    /// Runs whose runner is dead and which were not rescued.
    LostRuns {
        /// How many.
        count: usize,
        /// The task of the first run.
        task_id: TaskId,
        /// Why.
        why: Reason,
    },
    /// The process of a runner is alive, but has not renewed its lease in time: it is suspended, or cannot reach the database.
    /// Its slots stay taken.
    SilentRunner {
        /// Its name.
        runner: String,
        /// How many slots it has.
        slots: i32,
        /// For how long.
        silent_secs: i64,
    },
    /// The database's clock was set while a runner of this host worked.
    ClockSet {
        /// The name of the runner.
        runner: String,
        /// By how much, in seconds; negative if it was set back.
        step_secs: i64,
    },
    /// Tasks failed while the clock was ahead, so that their retries are too far in the future.
    FutureTasks {
        /// The first of them.
        tasks: Vec<TaskId>,
    },
    /// Schedules were planned while the clock was ahead, so that they skip the times before.
    FutureSchedules {
        /// Their newest tasks.
        tasks: Vec<TaskId>,
    },
    /// A claimant claimed or renewed a run while the clock was ahead, so that its lease ends too late.
    FutureClaim {
        /// The run.
        run_id: RunId,
        /// Its task.
        task_id: TaskId,
        /// The claimant.
        claimant: String,
    },
    /// This host cannot execute a class as it is configured.
    ClassProblem {
        /// The class.
        class: String,
        /// Why.
        problem: String,
    },
    /// A class passes a script to an interpreter, and the script does not exist on this host.
    MissingScript {
        /// The class.
        class: String,
        /// The script.
        script: PathBuf,
    },
    /// A schedule of the configuration cannot be applied.
    ScheduleProblem {
        /// Its name.
        schedule: String,
        /// Why.
        problem: String,
    },
    /// A class is held because its handler could not be started.
    ClassHeld {
        /// The class.
        class: String,
        /// Where.
        host: String,
        /// Why.
        reason: String,
    },
    /// A class has tasks and no handler here.
    NoHandler {
        /// The class.
        class: String,
    },
    /// A pause without an end is old.
    OldPause {
        /// The order.
        pause: Box<Pause>,
    },
    /// Schedules that cannot be parsed.
    BrokenSchedules {
        /// The newest tasks of the first ones.
        tasks: Vec<TaskId>,
    },
    /// Tasks wait for others that were cancelled or have expired.
    StrandedTasks {
        /// The first of them.
        tasks: Vec<TaskId>,
    },
    /// Quarantined tasks need an operator.
    Quarantined {
        /// How many.
        count: Counted,
    },
    /// Failures of tasks that are not retried were not reported.
    UnreportedFailures {
        /// How many.
        count: Counted,
    },
    /// A column of a task cannot be read, so the task is set aside.
    Unreadable {
        /// The task.
        task_id: TaskId,
        /// The column.
        column: &'static str,
        /// Its content, in a form that is safe to display.
        found: String,
    },
    /// Stored settings are invalid, so others are used in their place.
    InvalidSettings {
        /// Their names.
        settings: Vec<&'static str>,
        /// What is wrong, and what is used.
        problem: String,
    },
    /// Finished tasks are never pruned.
    KeptForEver {
        /// The status of these tasks.
        status: TaskStatus,
    },
    /// A file system has little free space.
    LittleRoom {
        /// Where.
        path: PathBuf,
        /// How many bytes are free.
        free_bytes: u64,
    },
    /// A file system has few free inodes, and every new file needs one.
    FewInodes {
        /// Where.
        path: PathBuf,
        /// How many are free.
        free_inodes: u64,
    },
    /// A file system is mounted read-only, so that nothing can be recorded there.
    ReadOnlyDisk {
        /// Where.
        path: PathBuf,
    },
    /// Another user can change a file or directory that only its owner should change.
    ChangeableByOthers {
        /// The file or directory.
        path: PathBuf,
        /// Who can change it, and how.
        problem: String,
    },
    /// The log of a SQLite store is large.
    LargeLog {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// Others may read or write a private file.
    OpenFile {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Outcomes of runs wait on the disk of this host for the database.
    LeftOutcomes {
        /// How many.
        count: usize,
        /// Where.
        directory: PathBuf,
    },
    /// Outcomes of runs wait on the disk of this host for a store with another address.
    OtherOutcomes {
        /// How many.
        count: usize,
        /// Where.
        directory: PathBuf,
        /// The address.
        database: String,
    },
    /// A runner has another version.
    OtherVersion {
        /// Its name.
        runner: String,
        /// Its version.
        version: String,
    },
}

impl Trouble {
    /// Returns how bad it is: critical problems prevent tasks from running or can lose some.
    #[must_use]
    pub fn level(&self) -> Level {
        match self {
            Self::Store(Symptom::Setting { name, .. }) if name == "autovacuum" || name == "journal_mode" => {
                Level::Warning
            }
            // A missing unique index leaves a rule unenforced; a missing index of another kind only makes statements slow.
            Self::Store(Symptom::MissingIndex { statement, .. }) if !statement.contains("UNIQUE") => Level::Warning,
            Self::Store(
                Symptom::Setting { .. } | Symptom::MissingIndex { .. } | Symptom::Locked { .. } | Symptom::Full { .. },
            )
            | Self::StoreClosed { .. }
            | Self::Unexamined { .. }
            | Self::NothingCreatesRuns { .. }
            | Self::NothingRuns { .. }
            | Self::LostRuns { .. }
            | Self::SilentRunner { .. }
            | Self::ClassProblem { .. }
            | Self::LittleRoom { .. }
            | Self::FewInodes { .. }
            | Self::ReadOnlyDisk { .. }
            | Self::Standstill { standstill: Standstill { cause: StandstillCause::NoRunner { .. }, .. } } => {
                Level::Critical
            }
            _ => Level::Warning,
        }
    }

    pub(super) const fn stops(&self) -> Stops {
        match self {
            Self::StoreClosed { .. }
            | Self::Store(Symptom::Locked { .. } | Symptom::Full { .. })
            | Self::ReadOnlyDisk { .. }
            | Self::FewInodes { .. }
            | Self::LittleRoom { .. }
            | Self::Unexamined { .. } => Stops::Store,
            Self::Standstill { .. }
            | Self::NothingCreatesRuns { .. }
            | Self::NothingRuns { .. }
            | Self::SilentRunner { .. } => Stops::Work,
            Self::ClassProblem { .. }
            | Self::MissingScript { .. }
            | Self::HungRuns { .. }
            | Self::ClassHeld { .. }
            | Self::NoHandler { .. }
            | Self::OldPause { .. } => Stops::Class,
            Self::LostRuns { .. }
            | Self::LeftOutcomes { .. }
            | Self::OtherOutcomes { .. }
            | Self::FutureTasks { .. }
            | Self::FutureSchedules { .. }
            | Self::FutureClaim { .. }
            | Self::BrokenSchedules { .. }
            | Self::StrandedTasks { .. }
            | Self::Quarantined { .. }
            | Self::Unreadable { .. }
            | Self::UnreportedFailures { .. } => Stops::Tasks,
            _ => Stops::Nothing,
        }
    }
}

/// What a problem stops, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stops {
    /// The store: nothing can be queued, claimed or recorded.
    Store,
    /// All work, or that of a runner.
    Work,
    /// The tasks of a class.
    Class,
    /// Some tasks.
    Tasks,
    /// Nothing yet.
    Nothing,
}
