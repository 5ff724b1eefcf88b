//! Why no process executes due tasks or waiting runs: everything is paused, no runner starts, or every slot has executed the
//! same run for a long time. `tick`, `status`, `doctor` and `check` use this. Changes nothing.

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use crate::context::Context;
use crate::error::EngineResult;
use crate::inspect::diagnosis::conditions::Inquiry;
use crate::inspect::diagnosis::hung::{HungRun, hung_among};
use taskqueue_domain::limits::pause::{Pause, PauseScope};
use taskqueue_domain::task::records::Runner;
use taskqueue_store::{ClassCounts, Counted};

/// How many classes are counted.
const CLASSES: usize = 50;
/// How many starts of runners are read to learn how often one starts.
const STARTS: i64 = 20;
/// A runner counts as missing after this many times the usual interval, within these limits.
const USUAL_TIMES: i64 = 3;
const SHORTEST_WAIT_SECS: i64 = 120;
const LONGEST_WAIT_SECS: i64 = 600;
/// How many runs in progress are read.
const RUNNING: i64 = 500;

/// Tasks are due or runs wait, and no process executes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Standstill {
    /// Due tasks without a run.
    pub due: Counted,
    /// Runs that wait for a runner.
    pub waiting: Counted,
    /// The cause.
    pub cause: StandstillCause,
}

/// The cause of a standstill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum StandstillCause {
    /// An operator has paused, drained or stopped everything, their class, or the runner by its name.
    Paused {
        /// The order.
        pause: Box<Pause>,
    },
    /// No runner has started for longer than usual.
    NoRunner {
        /// For how many seconds the first task has been due or the first run has waited.
        oldest_secs: i64,
        /// The usual number of seconds between two runners, if it is known.
        usual_secs: Option<i64>,
    },
    /// Every slot of the live runners has had the same run for long.
    SlotsTaken {
        /// How many slots.
        slots: i64,
        /// When the newest of these runs started.
        since: DateTime<Utc>,
        /// TaskQueueRunnerLimit, if these slots leave no room for another runner.
        limit: Option<i64>,
        /// Those of the runs that have not reported for a long time.
        hung: Vec<HungRun>,
    },
}

impl Standstill {
    /// Returns the number of due tasks and waiting runs.
    #[must_use]
    pub const fn tasks(&self) -> i64 {
        self.due.count + self.waiting.count
    }
}

/// Returns each cause for which due tasks and waiting runs are not processed, with the affected tasks.
///
/// # Errors
/// Returns an error if the database fails.
pub fn standstills(ctx: &mut Context) -> EngineResult<Vec<Standstill>> {
    let waiting = waiting_classes(ctx)?;
    if waiting.is_empty() {
        return Ok(Vec::new());
    }
    let now = ctx.store.now()?;
    let live = Inquiry::new(ctx, now).live_runners()?.to_vec();
    // If no runner is live, the next one probably has the name of the last one.
    let known = if live.is_empty() { ctx.store.list_runners(1)? } else { live.clone() };
    let names: Vec<String> = known.into_iter().map(|runner| runner.name).collect();
    let found = paused(ctx, &names, &waiting)?;
    if !found.is_empty() {
        return Ok(found);
    }
    let cause = if live.is_empty() { no_runner(ctx, now)? } else { slots_taken(ctx, &live, now)? };
    Ok(cause.into_iter().map(|cause| stopped_by(cause, &waiting)).collect())
}

/// Returns those caused by pauses that prevent this process from claiming.
///
/// # Errors
/// Returns an error if the database fails.
pub fn pauses_of_own(ctx: &mut Context) -> EngineResult<Vec<Standstill>> {
    if ctx.store.list_pauses()?.is_empty() {
        return Ok(Vec::new());
    }
    let (waiting, name) = (waiting_classes(ctx)?, ctx.me.runner_name.clone());
    paused(ctx, &[name], &waiting)
}

fn waiting_classes(ctx: &mut Context) -> EngineResult<Vec<ClassCounts>> {
    let mut classes = ctx.store.count_by_class(&[], CLASSES)?;
    classes.retain(|class| class.due.count + class.waiting.count > 0);
    Ok(classes)
}

/// Returns the pauses that cover everything, a waiting class, or all runners with these names.
fn paused(ctx: &mut Context, names: &[String], waiting: &[ClassCounts]) -> EngineResult<Vec<Standstill>> {
    let pauses = ctx.store.list_pauses()?;
    let is_covered = |name: &String| {
        pauses.iter().any(|pause| matches!(pause.scope, PauseScope::Runner(_)) && pause.scope.covers_runner(name))
    };
    let all_covered = !names.is_empty() && names.iter().all(is_covered);
    let found = pauses.iter().filter_map(|pause| {
        let affected: Vec<ClassCounts> = match &pause.scope {
            PauseScope::All => waiting.to_vec(),
            PauseScope::Class(_) => waiting.iter().filter(|of| pause.scope.covers(&of.class, "")).cloned().collect(),
            PauseScope::Runner(name) if all_covered && names.contains(name) => waiting.to_vec(),
            PauseScope::Runner(_) => Vec::new(),
        };
        let cause = StandstillCause::Paused { pause: Box::new(pause.clone()) };
        (!affected.is_empty()).then(|| stopped_by(cause, &affected))
    });
    Ok(found.collect())
}

fn stopped_by(cause: StandstillCause, affected: &[ClassCounts]) -> Standstill {
    let sum = |counts: &dyn Fn(&ClassCounts) -> Counted| Counted {
        count: affected.iter().map(|class| counts(class).count).sum(),
        or_more: affected.iter().any(|class| counts(class).or_more),
    };
    Standstill { due: sum(&|class| class.due), waiting: sum(&|class| class.waiting), cause }
}

fn no_runner(ctx: &mut Context, now: DateTime<Utc>) -> EngineResult<Option<StandstillCause>> {
    let oldest_secs = oldest_secs(ctx, now)?;
    let mut starts: Vec<DateTime<Utc>> =
        ctx.store.list_runners(STARTS)?.into_iter().map(|runner| runner.started_on).collect();
    starts.sort_unstable();
    // A runner without work leaves no row, so the shortest interval is the best guess.
    let usual_secs = starts.windows(2).map(|two| (two[1] - two[0]).num_seconds()).filter(|secs| *secs > 0).min();
    let limit = usual_secs.map_or(LONGEST_WAIT_SECS, |secs| secs.saturating_mul(USUAL_TIMES));
    let is_missing = oldest_secs > limit.clamp(SHORTEST_WAIT_SECS, LONGEST_WAIT_SECS);
    Ok(is_missing.then_some(StandstillCause::NoRunner { oldest_secs, usual_secs }))
}

/// Returns for how many seconds the first due task or waiting run has waited.
fn oldest_secs(ctx: &mut Context, now: DateTime<Utc>) -> EngineResult<i64> {
    let due_secs = ctx.store.oldest_due_secs()?.unwrap_or(0);
    let (waiting, _) = ctx.store.count_waiting_by_class(CLASSES)?;
    let oldest_run = waiting.iter().filter_map(|class| class.next_created_on).min();
    Ok(oldest_run.map_or(0, |on| (now - on).num_seconds()).max(due_secs))
}

fn slots_taken(ctx: &mut Context, live: &[Runner], now: DateTime<Utc>) -> EngineResult<Option<StandstillCause>> {
    let slots: i64 = live.iter().map(|runner| i64::from(runner.slots)).sum();
    let mut runs = ctx.store.list_processing_runs(None, RUNNING)?;
    runs.retain(|run| run.started_on.is_some() && live.iter().any(|runner| run.runner_id == Some(runner.id)));
    let are_all_taken = i64::try_from(runs.len()).is_ok_and(|count| count >= slots);
    let newest = runs.iter().filter_map(|run| run.started_on).max();
    let is_long = |since: &DateTime<Utc>| are_all_taken && now - *since > TimeDelta::seconds(LONGEST_WAIT_SECS);
    let Some(since) = newest.filter(is_long) else { return Ok(None) };
    if oldest_secs(ctx, now)? <= LONGEST_WAIT_SECS {
        return Ok(None);
    }
    let limit = i64::from(ctx.store.settings()?.runner_limit);
    let hung = hung_among(ctx, &runs, now)?;
    Ok(Some(StandstillCause::SlotsTaken { slots, since, limit: (slots >= limit).then_some(limit), hung }))
}
