//! `create-runs` (the scheme's createTaskRuns): rescues runs, ends expired tasks, advances schedules, creates the missing runs, and prunes some
//! finished rows.

use serde::Serialize;

use super::prune::prune_some;
use super::rescue::{RescueReport, rescue_runs};
use crate::announcing::announce::tell_notices;
use crate::change::pauses::remove_ended;
use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use crate::outbox::outcomes::send_left_over;
use crate::queueing::configured::{AppliedSchedule, apply_configured};
use crate::running::runner::register::finish_dead_runners;
use taskqueue_domain::run::due::{DueCondition, DueFacts, is_due};
use taskqueue_domain::run::status::{ScheduleStatus, TaskStatus};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Task;
use taskqueue_store::{Advanced, CleanupNeeds, Pruned, Store, StoreError, StoreResult};

/// The result of `create-runs`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CreateRunsReport {
    /// Outcomes that dead runners of this host had left in the spool.
    pub sent_outcomes: usize,
    /// Rescued runs, and those that could not be rescued.
    #[serde(flatten)]
    pub rescue: RescueReport,
    /// Runners that were marked as finished because their process is dead.
    pub finished_runners: usize,
    /// Tasks that ended because their time to start had passed.
    pub expired: usize,
    /// Tasks of schedules that were cancelled or asked to end, because the next planned time has come.
    pub replaced: usize,
    /// The schedules that were advanced.
    pub schedules: Advanced,
    /// The schedules of the configuration that were created, changed or removed, or that are invalid.
    pub configured: Vec<AppliedSchedule>,
    /// Runs created.
    pub created: usize,
    /// Why notices could not be sent.
    pub notify_problem: Option<String>,
    /// Why the program of a hook failed.
    pub hook_problem: Option<String>,
    /// Rows deleted because their retention period has passed.
    pub pruned: Pruned,
}

/// A task whose time has passed and which has no run.
#[derive(Clone, Debug)]
pub struct Passed {
    /// The task.
    pub task_id: TaskId,
    /// Its class.
    pub class: String,
    /// The reason.
    pub reason: String,
}

/// Rescues the runs of dead runners, ends expired tasks, advances schedules, creates one run for every due task, and prunes some
/// finished rows. `created` is called with the number of runs so far. A full disk in one step does not stop the others, because pruning makes
/// room.
///
/// # Errors
/// Returns an error if the database fails; a full disk in one step is returned after all steps.
pub fn create_runs(ctx: &mut Context, created: &mut dyn FnMut(usize)) -> EngineResult<CreateRunsReport> {
    look_after_and(ctx, true, |store| store.create_missing_runs(created))
}

/// Like [`create_runs`] without creating runs and without applying schedules of the configuration, for a worker: it creates runs
/// with its claims, and each worker applies its own configuration.
///
/// # Errors
/// Returns the same errors as [`create_runs`].
pub(crate) fn look_after(ctx: &mut Context) -> EngineResult<CreateRunsReport> {
    look_after_and(ctx, false, |store| store.give_key_slots(None).map(|()| 0))
}

fn look_after_and(
    ctx: &mut Context,
    applies_schedules: bool,
    create: impl FnOnce(&mut Store) -> StoreResult<usize>,
) -> EngineResult<CreateRunsReport> {
    let mut full = None;
    // Before the rescue: a run whose outcome is known on this host has ended, even if its runner is dead.
    let sent_outcomes = unless_full(send_left_over(ctx), &mut full)?;
    fault_point!("create.left_over_sent");
    let settings = ctx.store.recent_settings()?;
    let rescue = unless_full(rescue_runs(ctx, &settings), &mut full)?;
    let sent_outcomes = sent_outcomes + rescue.sent_outcomes;
    fault_point!("create.rescued");
    let finished_runners = unless_full(finish_dead_runners(ctx, settings.lease), &mut full)?;
    fault_point!("create.runners_finished");
    let needs = ctx.store.cleanup_needs(&settings.retention).map(Some);
    let needs = unless_full(needs, &mut full)?.unwrap_or(CleanupNeeds::ALL);
    if needs.pauses {
        unless_full(remove_ended(ctx).map(drop), &mut full)?;
    }
    // Before the schedules advance: an expired task of a schedule is followed by the next one.
    let expired = match needs.expired {
        true => unless_full(ctx.store.end_expired_tasks(), &mut full)?,
        false => 0,
    };
    if expired > 0 {
        ctx.notify_finished();
    }
    fault_point!("create.expired");
    if needs.missed_ends {
        unless_full(ctx.store.satisfy_missed_ends(), &mut full)?;
    }
    let configured = match applies_schedules {
        true => unless_full(apply_configured(ctx, Some(needs.configured_schedules)), &mut full)?,
        false => Vec::new(),
    };
    let (replaced, schedules) = match needs.schedules || !configured.is_empty() {
        true => {
            let replaced = unless_full(replace_overdue(ctx), &mut full)?;
            fault_point!("create.replaced");
            (replaced, unless_full(ctx.store.advance_schedules(), &mut full)?)
        }
        false => (0, Advanced::default()),
    };
    if needs.receipts {
        unless_full(ctx.store.remove_old_receipts(), &mut full)?;
        fault_point!("receipts.removed");
    }
    let created = unless_full(create(&mut ctx.store), &mut full)?;
    // Last, because nothing depends on it.
    let pruned = match needs.prunable {
        true => unless_full(prune_some(ctx, &settings.retention), &mut full)?,
        false => Pruned::default(),
    };
    let notify_problem = unless_full(tell_notices(ctx, needs.notices), &mut full)?;
    if let Some(full) = full {
        return Err(full);
    }
    let hook_problem = ctx.hook_problem.take();
    Ok(CreateRunsReport {
        sent_outcomes,
        rescue,
        finished_runners,
        expired,
        replaced,
        schedules,
        configured,
        created,
        notify_problem,
        hook_problem,
        pruned,
    })
}

/// Moves schedules on, for a process that creates runs itself: a schedule may skip a time that was missed, and its task may have
/// expired or be one to replace. Costs one look at an index if there are none. Returns whether it may have created a run.
///
/// # Errors
/// Returns an error if the database fails.
pub(crate) fn move_schedules_on(ctx: &mut Context) -> EngineResult<bool> {
    if !ctx.store.has_schedules()? {
        return Ok(false);
    }
    // As in create_runs: an expired task of a schedule is followed by the next one.
    let expired = ctx.store.end_expired_heads()?;
    if expired > 0 {
        ctx.notify_finished();
    }
    let replaced = replace_overdue(ctx)?;
    let advanced = ctx.store.advance_schedules()?;
    Ok(expired > 0 || replaced > 0 || advanced.planned > 0)
}

/// Cancels the tasks of schedules that the next task should replace now. Returns how many were cancelled or asked to end.
///
/// # Errors
/// Returns an error if the database fails.
pub(crate) fn replace_overdue(ctx: &mut Context) -> EngineResult<usize> {
    let replaced = ctx.store.replace_overdue_tasks()?;
    if replaced > 0 {
        ctx.notify_finished();
    }
    Ok(replaced)
}

/// Returns the default if the disk was full, and keeps that error for the end.
fn unless_full<T: Default>(
    result: Result<T, impl Into<EngineError>>,
    full: &mut Option<EngineError>,
) -> EngineResult<T> {
    match result.map_err(Into::into) {
        Err(error @ EngineError::Store(StoreError::Full { .. })) => {
            full.get_or_insert(error);
            Ok(T::default())
        }
        result => result,
    }
}

/// Returns up to `limit` tasks whose time has passed and which have no new run, each with the first reason.
///
/// # Errors
/// Returns an error if the database fails.
pub fn list_passed_tasks(ctx: &mut Context, limit: i64) -> EngineResult<Vec<Passed>> {
    let now = ctx.store.now()?;
    let mut tasks = ctx.store.list_unknown_tasks(limit)?;
    for status in [TaskStatus::Failed, TaskStatus::Timeout, TaskStatus::Scheduled, TaskStatus::Processing] {
        tasks.extend(ctx.store.list_passed_tasks(status, limit)?);
    }
    let passed = tasks.into_iter().filter_map(|task| {
        let facts = due_facts(&task);
        let unmet = is_due(&facts, now).err().filter(|condition| *condition != DueCondition::Due)?;
        Some(Passed { task_id: task.id, class: task.class.to_string(), reason: unmet.why_not(&facts) })
    });
    Ok(passed.take(usize::try_from(limit).unwrap_or(usize::MAX)).collect())
}

/// Returns the facts for the due rule.
#[must_use]
pub fn due_facts(task: &Task) -> DueFacts {
    DueFacts {
        status: task.status.clone(),
        has_open_run: task.current_run_id.is_some(),
        failed_retries: task.failed_retries,
        retry_limit: task.known_retry_limit(),
        waiting_for: task.waiting_for,
        is_quarantined: task.quarantined_on.is_some(),
        is_planned: task.schedule.as_ref().is_none_or(|schedule| schedule.planned_on.is_some()),
        is_schedule_paused: task.schedule.as_ref().is_some_and(|schedule| schedule.status.is(ScheduleStatus::Paused)),
        due_from: task.due_from(),
    }
}
