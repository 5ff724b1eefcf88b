//! `doctor`: what is wrong, or soon will be, with the store, its server, this host and its configuration. Changes nothing. The
//! caller adds how to fix each problem.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chrono::TimeDelta;

use crate::DatabaseUrl;
use crate::change::classes::{self, ClassState};
use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use crate::inspect::diagnosis::conditions::{Condition, Inquiry, Reason};
use crate::inspect::diagnosis::hung::{HungRun, hung_among};
use crate::inspect::diagnosis::standstill::{StandstillCause, standstills};
pub use crate::inspect::trouble::Trouble;
use crate::outbox::outcomes::Outcome;
use crate::queueing::configured::diff;
use crate::running::runner::register::liveness_of;
use taskqueue_domain::limits::pause::Pause;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::settings::{Setting, Settings};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::{HeldClaim, Run, Task};
use taskqueue_domain::text::unreadable::Unreadable;
use taskqueue_host::files::beside;
use taskqueue_host::files::disk::{device_of, mode_and_bytes, room_at};
use taskqueue_host::files::spool::Spool;
use taskqueue_host::files::trusted_path::{Trust, TrustedPath, Untrusted, check_store};
use taskqueue_process::identities::identity::Liveness;
use taskqueue_store::ClassHold;
pub use taskqueue_store::Symptom;

/// A task or run that waits for longer counts as not being processed.
const LONGEST_WAIT_SECS: i64 = 600;
/// An older pause without an end may have been forgotten.
const OLD_PAUSE: TimeDelta = TimeDelta::days(1);
/// A larger log of SQLite is not merged into the database because a reader prevents it.
const LARGE_LOG_BYTES: u64 = 256 << 20;
/// A disk counts as nearly full below both of these.
const LITTLE_ROOM_BYTES: u64 = 1 << 30;
const LITTLE_ROOM_PERCENT: u64 = 5;
/// A time this far in the future was written under a wrong clock.
const LARGEST_LEAD_SECS: i64 = 60;
/// With fewer free inodes, a busy host soon cannot create a file.
const FEW_INODES: u64 = 100;
/// How many tasks of one kind are named.
const NAMED: i64 = 5;
const CLASSES: usize = 100;
/// How many runs that wait for a slot of their limit key are examined.
const WAITING_FOR_KEYS: i64 = 20;
/// How many runs in progress are read to find those that hang.
const RUNNING: i64 = 500;
/// How many quarantined tasks are read.
const QUARANTINED_READ: i64 = 100;

/// Private files to check.
#[derive(Clone, Debug, Default)]
pub struct OwnFiles {
    /// The configuration: only its owner may write it.
    pub configuration: Option<PathBuf>,
    /// The file of a SQLite store: only its owner may read or write it.
    pub store: Option<PathBuf>,
}

/// Returns all problems that can be seen from here, those that stop the most work first. Transactions open for more than
/// `long_secs` seconds are problems, because they block others or the server's clean-up. A part that cannot be examined is a
/// problem too, and the other parts are still examined.
#[must_use]
pub fn examine(ctx: &mut Context, files: &OwnFiles, long_secs: i64) -> Vec<Trouble> {
    let mut found = FoundProblems { troubles: files_in_danger(files, ctx.spool.as_ref().map(Spool::directory)) };
    found.troubles.extend(left_outcomes(ctx.spool.as_ref()));
    found.troubles.extend(ctx.spool.as_ref().map(other_outcomes).unwrap_or_default());
    let symptoms = ctx.store.symptoms(long_secs).map_err(EngineError::from);
    found.add("the database", symptoms.map(|symptoms| symptoms.into_iter().map(Trouble::Store).collect()));
    found.add("the settings", setting_troubles(ctx));
    found.add("the classes", class_troubles(ctx));
    found.add("the configured schedules", schedule_troubles(ctx));
    for (part, troubles) in QUEUE_PARTS {
        let troubles = troubles(ctx, &found.troubles);
        found.add(part, troubles);
    }
    found.sorted()
}

/// Returns those of the problems of [`examine`] that the tables alone show, and not this host or its configuration.
///
/// # Errors
/// Returns an error if the database fails.
pub fn examine_queue(ctx: &mut Context) -> EngineResult<Vec<Trouble>> {
    let mut found = FoundProblems { troubles: Vec::new() };
    for (_, troubles) in QUEUE_PARTS {
        let troubles = troubles(ctx, &found.troubles)?;
        found.troubles.extend(troubles);
    }
    Ok(found.sorted())
}

/// Returns the problems of a part, without those that were found before.
type QueuePart = fn(&mut Context, &[Trouble]) -> EngineResult<Vec<Trouble>>;

/// The parts of the queue.
const QUEUE_PARTS: [(&str, QueuePart); 4] = [
    ("the tasks", |ctx, _| task_troubles(ctx)),
    ("the runners", |ctx, _| moving_troubles(ctx)),
    ("the queue", standstill_troubles),
    ("the pauses", old_pauses),
];

/// Returns the schedules of the configuration that cannot be applied.
fn schedule_troubles(ctx: &mut Context) -> EngineResult<Vec<Trouble>> {
    let invalid = diff(ctx)?.into_iter().filter_map(|schedule| Some((schedule.name, schedule.problem?)));
    Ok(invalid.map(|(schedule, problem)| Trouble::ScheduleProblem { schedule, problem }).collect())
}

/// Returns up to `limit` runs in progress of claimants, those with the earliest deadline first. They are no problems.
///
/// # Errors
/// Returns an error if the database fails.
pub fn list_claims(ctx: &mut Context, limit: i64) -> EngineResult<Vec<HeldClaim>> {
    Ok(ctx.store.list_claims(limit)?.iter().filter_map(Run::held_claim).collect())
}

/// Returns the problems of a store that cannot be opened, as far as they can be seen.
#[must_use]
pub fn examine_closed(url: &DatabaseUrl, error: String, files: &OwnFiles, spool: Option<&Path>) -> Vec<Trouble> {
    let mut found = FoundProblems { troubles: vec![Trouble::StoreClosed { store: url.to_string(), error }] };
    found.troubles.extend(files_in_danger(files, spool));
    found.troubles.extend(left_outcomes(spool.map(|directory| Spool::new(directory, url.identity())).as_ref()));
    found.sorted()
}

/// The problems found so far.
struct FoundProblems {
    troubles: Vec<Trouble>,
}

impl FoundProblems {
    /// Adds the problems of a part, or why it was not examined; each reason is added once.
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
        self.troubles.sort_by_key(|trouble| (trouble.stops(), std::cmp::Reverse(trouble.level())));
        self.troubles
    }
}

/// Returns the old pauses, without those that were reported because work waits for them.
fn old_pauses(ctx: &mut Context, found: &[Trouble]) -> EngineResult<Vec<Trouble>> {
    let now = ctx.store.now()?;
    let is_known = |pause: &Pause| {
        let causes = found.iter().filter_map(|trouble| match trouble {
            Trouble::Standstill { standstill } => Some(&standstill.cause),
            _ => None,
        });
        causes.into_iter().any(|cause| matches!(cause, StandstillCause::Paused { pause: known } if **known == *pause))
    };
    let is_old = |pause: &Pause| pause.until.is_none() && now - pause.created_on > OLD_PAUSE && !is_known(pause);
    let pauses = ctx.store.list_pauses()?.into_iter().filter(is_old);
    Ok(pauses.map(|pause| Trouble::OldPause { pause: Box::new(pause) }).collect())
}

/// Returns the standstills. A missing runner is left out if it was reported before.
fn standstill_troubles(ctx: &mut Context, found: &[Trouble]) -> EngineResult<Vec<Trouble>> {
    let is_known =
        found.iter().any(|trouble| matches!(trouble, Trouble::NothingCreatesRuns { .. } | Trouble::NothingRuns { .. }));
    let mut standstills = standstills(ctx)?;
    standstills.retain(|standstill| !(is_known && matches!(standstill.cause, StandstillCause::NoRunner { .. })));
    Ok(standstills.into_iter().map(|standstill| Trouble::Standstill { standstill }).collect())
}

fn files_in_danger(files: &OwnFiles, spool: Option<&Path>) -> Vec<Trouble> {
    let mut troubles: Vec<Trouble> = Vec::new();
    troubles.extend(files.configuration.as_deref().and_then(|path| open_file(path, 0o022)));
    troubles.extend(files.store.as_deref().map(store_in_danger).unwrap_or_default());
    // The directory is created when it is needed.
    let Some(spool) = spool.filter(|spool| spool.is_dir()) else { return troubles };
    let of_spool = open_file(spool, 0o077).into_iter().chain(trouble_of_disk(spool));
    let of_spool = of_spool.chain(TrustedPath::find(spool, Trust::OursAlone).err().as_ref().map(changeable));
    for trouble in of_spool {
        if !troubles.iter().any(|other| is_same_file_system(other, &trouble)) {
            add_unless_open(&mut troubles, trouble);
        }
    }
    troubles
}

/// Adds a problem unless the permission bits of the same path were already reported.
fn add_unless_open(troubles: &mut Vec<Trouble>, trouble: Trouble) {
    let is_open =
        |path: &Path| troubles.iter().any(|it| matches!(it, Trouble::OpenFile { path: open, .. } if open == path));
    if !matches!(&trouble, Trouble::ChangeableByOthers { path, .. } if is_open(path)) {
        troubles.push(trouble);
    }
}

/// Returns true if both are about the space of one file system; store and spool often share one.
fn is_same_file_system(one: &Trouble, other: &Trouble) -> bool {
    let place = |trouble: &Trouble| match trouble {
        Trouble::LittleRoom { path, .. } => Some((0, device_of(path)?)),
        Trouble::FewInodes { path, .. } => Some((1, device_of(path)?)),
        Trouble::ReadOnlyDisk { path } => Some((2, device_of(path)?)),
        _ => None,
    };
    place(one).is_some_and(|found| place(other) == Some(found))
}

fn changeable(problem: &Untrusted) -> Trouble {
    Trouble::ChangeableByOthers { path: problem.path().to_owned(), problem: problem.to_string() }
}

fn store_in_danger(store: &Path) -> Vec<Trouble> {
    let mut troubles: Vec<Trouble> = open_file(store, 0o077).into_iter().collect();
    if let Err(problem) = check_store(store) {
        add_unless_open(&mut troubles, changeable(&problem));
    }
    let log = beside(store, "-wal");
    if let Some((_, bytes)) = mode_and_bytes(&log).filter(|(_, bytes)| *bytes > LARGE_LOG_BYTES) {
        troubles.push(Trouble::LargeLog { path: log, bytes });
    }
    troubles.extend(trouble_of_disk(store));
    troubles
}

fn trouble_of_disk(path: &Path) -> Vec<Trouble> {
    let mut troubles = Vec::new();
    let Ok(room) = room_at(path) else { return troubles };
    if room.is_read_only {
        troubles.push(Trouble::ReadOnlyDisk { path: path.to_owned() });
        return troubles;
    }
    let is_little = |free: u64, total: u64| free < total / 100 * LITTLE_ROOM_PERCENT;
    if room.free_bytes < LITTLE_ROOM_BYTES && is_little(room.free_bytes, room.total_bytes) {
        troubles.push(Trouble::LittleRoom { path: path.to_owned(), free_bytes: room.free_bytes });
    }
    if room.total_inodes > 0 && room.free_inodes < FEW_INODES {
        troubles.push(Trouble::FewInodes { path: path.to_owned(), free_inodes: room.free_inodes });
    }
    troubles
}

/// Returns a problem if others have one of these permissions.
fn open_file(path: &Path, forbidden: u32) -> Option<Trouble> {
    let (mode, _) = mode_and_bytes(path).filter(|(mode, _)| mode & forbidden != 0)?;
    Some(Trouble::OpenFile { path: path.to_owned(), mode })
}

/// Returns a problem if outcomes are left that no live process is about to send.
fn left_outcomes(spool: Option<&Spool>) -> Option<Trouble> {
    let spool = spool?;
    let count: usize = spool.left_over().map(|file| file.records().len()).sum();
    (count > 0).then(|| Trouble::LeftOutcomes { count, directory: spool.directory().to_owned() })
}

/// Returns a problem for each other address whose outcomes are left. The store may be this one, under an earlier address.
fn other_outcomes(spool: &Spool) -> Vec<Trouble> {
    let mut counts = BTreeMap::new();
    for record in spool.left_over_by_others() {
        if let Ok(Outcome { database, .. }) = serde_json::from_str(&record) {
            *counts.entry(database).or_default() += 1;
        }
    }
    let trouble =
        |(database, count)| Trouble::OtherOutcomes { count, directory: spool.directory().to_owned(), database };
    counts.into_iter().map(trouble).collect()
}

fn setting_troubles(ctx: &mut Context) -> EngineResult<Vec<Trouble>> {
    let (settings, problems) = Settings::from_rows(&ctx.store.setting_rows()?);
    let invalid = problems.iter().map(|problem| Trouble::InvalidSettings {
        settings: problem.settings().into_iter().map(Setting::name).collect(),
        problem: problem.as_stored(),
    });
    Ok(invalid.chain(kept_for_ever(&settings)).collect())
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
    for ClassState { name, kind, problem, missing_script, holds, .. } in classes::list(ctx)? {
        let class = || name.clone();
        troubles.extend(problem.map(|problem| match kind {
            "none" => Trouble::NoHandler { class: class() },
            _ => Trouble::ClassProblem { class: class(), problem },
        }));
        troubles.extend(missing_script.map(|script| Trouble::MissingScript { class: class(), script }));
        let held = |ClassHold { host, reason, .. }| Trouble::ClassHeld { class: class(), host, reason };
        troubles.extend(holds.into_iter().map(held));
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
    if counts.unreported_failures.count > 0 {
        troubles.push(Trouble::UnreportedFailures { count: counts.unreported_failures });
    }
    if let Some(oldest_secs) = counts.oldest_due_secs.filter(|secs| *secs > LONGEST_WAIT_SECS) {
        troubles.push(Trouble::NothingCreatesRuns { due: counts.due, oldest_secs });
    }
    let if_any = |tasks: Vec<TaskId>| Some(tasks).filter(|tasks| !tasks.is_empty());
    let broken = if_any(ctx.store.list_broken_schedules(NAMED)?);
    troubles.extend(broken.map(|tasks| Trouble::BrokenSchedules { tasks }));
    let future = if_any(ctx.store.list_failed_in_the_future(LARGEST_LEAD_SECS, NAMED)?);
    troubles.extend(future.map(|tasks| Trouble::FutureTasks { tasks }));
    let mut planned = ctx.store.list_planned_in_the_future(LARGEST_LEAD_SECS)?;
    planned.truncate(usize::try_from(NAMED).unwrap_or(usize::MAX));
    troubles.extend(if_any(planned).map(|tasks| Trouble::FutureSchedules { tasks }));
    let mut claims = ctx.store.list_claims_in_the_future(LARGEST_LEAD_SECS, NAMED)?;
    claims.retain(|run| liveness_of(&run.process_identity) != Liveness::Alive);
    let claim = |HeldClaim { run_id, task_id, claimant, .. }| Trouble::FutureClaim { run_id, task_id, claimant };
    troubles.extend(claims.iter().filter_map(Run::held_claim).map(claim));
    let stranded = if_any(ctx.store.list_stranded_tasks(NAMED)?);
    troubles.extend(stranded.map(|tasks| Trouble::StrandedTasks { tasks }));
    Ok(troubles)
}

fn unreadable_tasks(ctx: &mut Context) -> EngineResult<Vec<Trouble>> {
    let quarantined = ctx.store.list_quarantined_tasks(QUARANTINED_READ)?;
    let unreadable = quarantined.into_iter().filter_map(|task| {
        let Unreadable { column, found, .. } = task.unreadable.into_iter().next()?;
        Some(Trouble::Unreadable { task_id: task.id, column, found })
    });
    Ok(unreadable.take(usize::try_from(NAMED).unwrap_or(usize::MAX)).collect())
}

/// Returns true unless the cause is temporary: a long queue is no problem while it moves.
fn keeps_from_running(why: &Reason) -> bool {
    !matches!(why, Reason::RunnersBusy { .. } | Reason::WaitsItsTurn { .. } | Reason::RunnersPaused { .. })
}

/// Adds the problem of a run that waits for a slot of its class or key, if all runs that have one hang, once for each limit.
fn add_hung_runs(
    ctx: &mut Context,
    task: &Task,
    unmet: Vec<Condition>,
    troubles: &mut Vec<Trouble>,
) -> EngineResult<()> {
    let now = ctx.store.now()?;
    let class = task.class.to_string();
    let of_limit = unmet.into_iter().find_map(|condition| match condition.why? {
        Reason::ClassIsFull { max_running } => Some((None, max_running)),
        Reason::KeyIsFull { key, max_running, .. } => Some((Some(key), max_running)),
        _ => None,
    });
    let Some((key, max_running)) = of_limit else { return Ok(()) };
    let mut runs = ctx.store.list_processing_runs(None, RUNNING)?;
    runs.retain(|run| match &key {
        Some(_) => run.has_key_slot && run.limit_key == key,
        None => run.class.to_string() == class,
    });
    let hung = hung_among(ctx, &runs, now)?;
    let is_full = usize::try_from(max_running).is_ok_and(|max| runs.len() >= max);
    let tasks = |hung: &[HungRun]| hung.iter().map(|run| run.task_id).collect::<Vec<_>>();
    let is_known =
        |other: &Trouble| matches!(other, Trouble::HungRuns { hung: known, .. } if tasks(known) == tasks(&hung));
    if !hung.is_empty() && hung.len() == runs.len() && is_full && !troubles.iter().any(is_known) {
        troubles.push(Trouble::HungRuns { class, key, max_running, hung });
    }
    Ok(())
}

/// Returns the problems that prevent runs from being claimed or rescued.
fn moving_troubles(ctx: &mut Context) -> EngineResult<Vec<Trouble>> {
    let (mut troubles, now) = (Vec::new(), ctx.store.now()?);
    let mut first = ctx.store.list_first_waiting(CLASSES)?;
    first.extend(ctx.store.list_first_waiting_for_keys(WAITING_FOR_KEYS)?);
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
        // Skips a pause, a hold, a limit or a missing handler: these are not about runners, and are reported elsewhere.
        let unmet: Vec<Condition> =
            inquiry.conditions_of(&task, Some(&run))?.into_iter().filter(|condition| !condition.is_met).collect();
        if !unmet.is_empty() {
            add_hung_runs(inquiry.ctx, &task, unmet, &mut troubles)?;
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
