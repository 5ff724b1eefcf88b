//! `doctor`: what is wrong, or soon will be, with the store, its server, this host and its configuration. Changes nothing; how
//! each thing is mended is for whoever shows it.

use std::path::{Path, PathBuf};

use chrono::TimeDelta;
use serde::Serialize;

use super::classes;
use super::conditions::{Inquiry, Reason};
use super::standstill::{Standstill, StandstillCause, standstills};
use super::{Context, DatabaseUrl, EngineError, EngineResult};
use crate::domain::check::Level;
use crate::domain::ids::TaskId;
use crate::domain::pause::Pause;
use crate::domain::settings::Settings;
use crate::domain::status::TaskStatus;
use crate::domain::unreadable::Unreadable;
use crate::os::disk::{mode_and_bytes, room_at};
use crate::os::spool::Spool;
use crate::store::Counted;
pub use crate::store::Symptom;

/// What has waited for longer is waited for by nobody.
const LONGEST_WAIT_SECS: i64 = 600;
/// A pause without an end that is older may have been forgotten.
const OLD_PAUSE: TimeDelta = TimeDelta::days(1);
/// A log of SQLite that is larger is kept from being taken in by somebody who reads.
const LARGE_LOG_BYTES: u64 = 256 << 20;
/// A disk is nearly full below both of these.
const LITTLE_ROOM_BYTES: u64 = 1 << 30;
const LITTLE_ROOM_PERCENT: u64 = 5;
/// A row that was written so much later than now was written under a wrong clock.
const LARGEST_LEAD_SECS: i64 = 60;
/// Tasks of one kind that are named.
const NAMED: i64 = 5;
const CLASSES: usize = 100;
/// Quarantined tasks of which the rows are read.
const QUARANTINED_READ: i64 = 100;

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "trouble", rename_all = "snake_case")]
pub enum Trouble {
    /// The server or the file shows it.
    Store(Symptom),
    /// The database cannot be opened: nothing that is in its tables was examined.
    StoreClosed {
        /// The address of the store.
        store: String,
        /// Why.
        error: String,
    },
    /// Something could not be examined.
    Unexamined {
        /// What.
        part: &'static str,
        /// Why.
        error: String,
    },
    /// Tasks are due, have no run, and nobody creates one.
    NothingCreatesRuns {
        /// How many.
        due: Counted,
        /// For how long the first has been due.
        oldest_secs: i64,
    },
    /// Tasks are due or runs wait, and a pause, a missing runner or taken slots keep all of them from being processed.
    Standstill {
        /// What is affected, and why.
        standstill: Standstill,
    },
    /// Runs wait for a runner that does not come.
    NothingRuns {
        /// The task of the first.
        task_id: TaskId,
        /// Its class.
        class: String,
        /// Why, as `explain` says it.
        why: Reason,
    },
    /// Runs whose runner is dead, which nobody has taken back.
    LostRuns {
        /// How many.
        count: usize,
        /// The task of the first.
        task_id: TaskId,
        /// Why.
        why: Reason,
    },
    /// The process of a runner lives, and has not renewed its lease for longer than a lease: it is frozen, or cannot reach the
    /// database. Its slots stay taken.
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
    /// Tasks failed under a clock that was ahead, and wait until it is reached.
    FutureTasks {
        /// The first of them.
        tasks: Vec<TaskId>,
    },
    /// A class cannot be executed here as it is configured.
    ClassProblem {
        /// The class.
        class: String,
        /// Why.
        problem: String,
    },
    /// A class is held, because its handler could not be started.
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
    /// Something is paused without an end, and has been for long.
    OldPause {
        /// The order.
        pause: Box<Pause>,
    },
    /// Schedules cannot be read.
    BrokenSchedules {
        /// Their newest tasks, the first of them.
        tasks: Vec<TaskId>,
    },
    /// Tasks wait for others that were cancelled.
    StrandedTasks {
        /// The first of them.
        tasks: Vec<TaskId>,
    },
    /// Tasks crashed too often, and wait for somebody to look at them.
    Quarantined {
        /// How many.
        count: Counted,
    },
    /// A column of a task cannot be read, and the task is set aside.
    Unreadable {
        /// The task.
        task_id: TaskId,
        /// The column.
        column: &'static str,
        /// What it holds, in a form that is safe to show.
        found: String,
    },
    /// Finished tasks are kept for ever.
    KeptForEver {
        /// In this status.
        status: TaskStatus,
    },
    /// A file system has little room.
    LittleRoom {
        /// Where.
        path: PathBuf,
        /// What is free.
        free_bytes: u64,
    },
    /// The log of a SQLite store has grown.
    LargeLog {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// Others may read or write a file that is ours alone.
    OpenFile {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Outcomes of runs wait on this host's disk for the database.
    LeftOutcomes {
        /// How many.
        count: usize,
        /// Where.
        directory: PathBuf,
    },
    /// A runner is of another version.
    OtherVersion {
        /// Its name.
        runner: String,
        /// Its version.
        version: String,
    },
}

impl Trouble {
    /// How bad it is: critical is what keeps tasks from running, or can lose some.
    #[must_use]
    pub fn level(&self) -> Level {
        match self {
            Self::Store(Symptom::Setting { name, .. }) if name == "autovacuum" || name == "journal_mode" => {
                Level::Warning
            }
            // What it enforces is not enforced; of the others it is said that things get slow.
            Self::Store(Symptom::MissingIndex { statement, .. }) if !statement.contains("UNIQUE") => Level::Warning,
            Self::Store(Symptom::Setting { .. } | Symptom::MissingIndex { .. })
            | Self::StoreClosed { .. }
            | Self::Unexamined { .. }
            | Self::NothingCreatesRuns { .. }
            | Self::NothingRuns { .. }
            | Self::LostRuns { .. }
            | Self::SilentRunner { .. }
            | Self::ClassProblem { .. }
            | Self::LittleRoom { .. }
            | Self::Standstill { standstill: Standstill { cause: StandstillCause::NoRunner { .. }, .. } } => {
                Level::Critical
            }
            _ => Level::Warning,
        }
    }
}

/// Files that are ours alone.
#[derive(Clone, Debug, Default)]
pub struct OwnFiles {
    /// The configuration: nobody else may write it.
    pub configuration: Option<PathBuf>,
    /// The file of a SQLite store: nobody else may read or write it.
    pub store: Option<PathBuf>,
}

/// Everything that is wrong, as far as can be seen from here; the worst first. Transactions count as long that have been open for
/// so many seconds: they block others, or the server's clean-up. What cannot be examined is a finding, and the rest is examined.
#[must_use]
pub fn examine(ctx: &mut Context, files: &OwnFiles, long_secs: i64) -> Vec<Trouble> {
    let mut found = Found { troubles: files_in_danger(files) };
    found.troubles.extend(left_outcomes(ctx.spool.as_ref()));
    found.add(
        "the database",
        ctx.store
            .symptoms(long_secs)
            .map_err(EngineError::from)
            .map(|symptoms| symptoms.into_iter().map(Trouble::Store).collect()),
    );
    let settings = ctx.store.settings().map_err(EngineError::from);
    found.add("the settings", settings.map(|settings| kept_for_ever(&settings)));
    found.add("the classes", class_troubles(ctx));
    found.add("the tasks", task_troubles(ctx));
    found.add("the runners", moving_troubles(ctx));
    found.add("the queue", standstill_troubles(ctx, &found.troubles));
    found.add("the pauses", old_pauses(ctx));
    found.sorted()
}

/// What can be seen of a store that cannot be opened, beside why not.
#[must_use]
pub fn examine_closed(url: &DatabaseUrl, error: String, files: &OwnFiles, spool: Option<&Path>) -> Vec<Trouble> {
    let mut found = Found { troubles: vec![Trouble::StoreClosed { store: url.to_string(), error }] };
    found.troubles.extend(files_in_danger(files));
    found.troubles.extend(left_outcomes(spool.map(|directory| Spool::new(directory, &url.to_string())).as_ref()));
    found.sorted()
}

/// What was found so far.
struct Found {
    troubles: Vec<Trouble>,
}

impl Found {
    /// Adds what was found of a part, or why it was not examined: the same reason is given once.
    fn add(&mut self, part: &'static str, troubles: EngineResult<Vec<Trouble>>) {
        match troubles {
            Ok(troubles) => self.troubles.extend(troubles),
            Err(error) => {
                let error = error.to_string();
                let is_known =
                    |trouble: &Trouble| matches!(trouble, Trouble::Unexamined { error: known, .. } if *known == error);
                if !self.troubles.iter().any(is_known) {
                    self.troubles.push(Trouble::Unexamined { part, error });
                }
            }
        }
    }

    fn sorted(mut self) -> Vec<Trouble> {
        self.troubles.sort_by_key(|trouble| std::cmp::Reverse(trouble.level()));
        self.troubles
    }
}

fn old_pauses(ctx: &mut Context) -> EngineResult<Vec<Trouble>> {
    let now = ctx.store.now()?;
    let is_old = |pause: &Pause| pause.until.is_none() && now - pause.created_on > OLD_PAUSE;
    let pauses = ctx.store.list_pauses()?.into_iter().filter(is_old);
    Ok(pauses.map(|pause| Trouble::OldPause { pause: Box::new(pause) }).collect())
}

/// Without a missing runner where that is among the findings already.
fn standstill_troubles(ctx: &mut Context, found: &[Trouble]) -> EngineResult<Vec<Trouble>> {
    let is_known =
        found.iter().any(|trouble| matches!(trouble, Trouble::NothingCreatesRuns { .. } | Trouble::NothingRuns { .. }));
    let mut standstills = standstills(ctx)?;
    standstills.retain(|standstill| !(is_known && matches!(standstill.cause, StandstillCause::NoRunner { .. })));
    Ok(standstills.into_iter().map(|standstill| Trouble::Standstill { standstill }).collect())
}

fn files_in_danger(files: &OwnFiles) -> Vec<Trouble> {
    let mut troubles: Vec<Trouble> = Vec::new();
    troubles.extend(files.configuration.as_deref().and_then(|path| open_file(path, 0o022)));
    let Some(store) = &files.store else { return troubles };
    troubles.extend(open_file(store, 0o077));
    let mut log = store.clone().into_os_string();
    log.push("-wal");
    if let Some((_, bytes)) = mode_and_bytes(Path::new(&log)).filter(|(_, bytes)| *bytes > LARGE_LOG_BYTES) {
        troubles.push(Trouble::LargeLog { path: log.into(), bytes });
    }
    if let Ok(room) = room_at(store)
        && room.free_bytes < LITTLE_ROOM_BYTES
        && room.free_bytes < room.total_bytes / 100 * LITTLE_ROOM_PERCENT
    {
        troubles.push(Trouble::LittleRoom { path: store.clone(), free_bytes: room.free_bytes });
    }
    troubles
}

/// Where others have one of these permissions.
fn open_file(path: &Path, forbidden: u32) -> Option<Trouble> {
    let (mode, _) = mode_and_bytes(path).filter(|(mode, _)| mode & forbidden != 0)?;
    Some(Trouble::OpenFile { path: path.to_owned(), mode })
}

/// Those that no living process is about to send.
fn left_outcomes(spool: Option<&Spool>) -> Option<Trouble> {
    let spool = spool?;
    let count: usize = spool.left_over().map(|file| file.records().len()).sum();
    (count > 0).then(|| Trouble::LeftOutcomes { count, directory: spool.directory().to_owned() })
}

fn kept_for_ever(settings: &Settings) -> Vec<Trouble> {
    let is_unlimited = |status: &TaskStatus| {
        let keep = settings.retention.of(*status);
        keep.older_than_secs().is_none() && keep.at_most().is_none()
    };
    let finished = [TaskStatus::Success, TaskStatus::Cancelled].into_iter().filter(is_unlimited);
    finished.map(|status| Trouble::KeptForEver { status }).collect()
}

fn class_troubles(ctx: &mut Context) -> EngineResult<Vec<Trouble>> {
    let mut troubles = Vec::new();
    for state in classes::list(ctx)? {
        let class = state.name.clone();
        troubles.extend(state.problem.map(|problem| match state.kind {
            "none" => Trouble::NoHandler { class },
            _ => Trouble::ClassProblem { class, problem },
        }));
        let (class, holds) = (state.name, state.holds);
        troubles.extend(holds.into_iter().map(|hold| Trouble::ClassHeld {
            class: class.clone(),
            host: hold.host,
            reason: hold.reason,
        }));
    }
    Ok(troubles)
}

fn task_troubles(ctx: &mut Context) -> EngineResult<Vec<Trouble>> {
    let mut troubles = Vec::new();
    let counts = ctx.store.count_tasks(None)?;
    if counts.quarantined.count > 0 {
        troubles.push(Trouble::Quarantined { count: counts.quarantined });
        troubles.extend(unreadable_tasks(ctx)?);
    }
    if let Some(oldest_secs) = counts.oldest_due_secs.filter(|secs| *secs > LONGEST_WAIT_SECS) {
        troubles.push(Trouble::NothingCreatesRuns { due: counts.due, oldest_secs });
    }
    let broken = ctx.store.list_broken_schedules(NAMED)?;
    if !broken.is_empty() {
        troubles.push(Trouble::BrokenSchedules { tasks: broken });
    }
    let future = ctx.store.list_failed_in_the_future(LARGEST_LEAD_SECS, NAMED)?;
    if !future.is_empty() {
        troubles.push(Trouble::FutureTasks { tasks: future });
    }
    let stranded = ctx.store.list_stranded_tasks(NAMED)?;
    if !stranded.is_empty() {
        troubles.push(Trouble::StrandedTasks { tasks: stranded });
    }
    Ok(troubles)
}

fn unreadable_tasks(ctx: &mut Context) -> EngineResult<Vec<Trouble>> {
    let quarantined = ctx.store.list_quarantined_tasks(QUARANTINED_READ)?;
    let unreadable = quarantined.into_iter().filter_map(|task| {
        let Unreadable { column, found } = task.unreadable.into_iter().next()?;
        Some(Trouble::Unreadable { task_id: task.id, column, found })
    });
    Ok(unreadable.take(usize::try_from(NAMED).unwrap_or(usize::MAX)).collect())
}

/// Not merely for a while: a long queue is no trouble as long as it moves.
fn keeps_from_running(why: &Reason) -> bool {
    !matches!(why, Reason::RunnersBusy { .. } | Reason::WaitsItsTurn { .. } | Reason::RunnersPaused { .. })
}

/// What keeps runs from being taken, or from being taken back.
fn moving_troubles(ctx: &mut Context) -> EngineResult<Vec<Trouble>> {
    let (mut troubles, now) = (Vec::new(), ctx.store.now()?);
    let first = ctx.store.list_first_waiting(CLASSES)?;
    let mut inquiry = Inquiry::new(ctx, now);
    let lost = inquiry.lost_runs()?;
    let count = lost.len();
    troubles.extend(lost.into_iter().next().map(|(task_id, why)| Trouble::LostRuns { count, task_id, why }));
    for task_id in first {
        let Some(run) = inquiry.ctx.store.list_runs_of_task(task_id, 1)?.into_iter().next() else { continue };
        if (now - run.created_on).num_seconds() <= LONGEST_WAIT_SECS {
            continue;
        }
        let Some(task) = inquiry.ctx.store.get_tasks(&[task_id])?.into_iter().next() else { continue };
        // A pause, a hold, a limit or a missing handler is no fault of the runners, and said elsewhere where it is one.
        if inquiry.conditions_of(&task, Some(&run))?.iter().any(|condition| !condition.is_met) {
            continue;
        }
        let why = inquiry.runner_is_free(&task, run.id)?.why.filter(keeps_from_running);
        troubles.extend(why.map(|why| Trouble::NothingRuns { task_id, class: task.class.to_string(), why }));
    }
    troubles.extend(inquiry.silent_runners()?.into_iter().map(|(runner, silent_secs)| Trouble::SilentRunner {
        runner: runner.name,
        slots: runner.slots,
        silent_secs,
    }));
    let step = inquiry.clock_step()?;
    troubles.extend(step.map(|(runner, step)| Trouble::ClockSet { runner, step_secs: step.num_seconds() }));
    for runner in inquiry.live_runners()? {
        if runner.version != env!("CARGO_PKG_VERSION") && !runner.version.is_empty() {
            troubles.push(Trouble::OtherVersion { runner: runner.name.clone(), version: runner.version.clone() });
        }
    }
    Ok(troubles)
}
