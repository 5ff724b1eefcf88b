//! `create-runs` (the scheme's createTaskRuns): rescues, lets schedules go on, creates the missing runs,
//! and prunes a part of what was kept long enough.

use serde::Serialize;

use super::announce::tell_notices;
use super::prune::prune_some;
use super::rescue::{RescueReport, rescue_runs};
use crate::change::pauses::remove_ended;
use crate::outbox::outcomes::send_left_over;
use crate::running::register::finish_dead_runners;
use crate::{Context, EngineError, EngineResult};
use taskqueue_domain::run::status::{ScheduleStatus, TaskStatus};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Task;
use taskqueue_domain::time::due::{DueFacts, NotDue, is_due};
use taskqueue_store::{Advanced, Author, CleanupNeeds, Pruned, Store, StoreError, StoreResult};

/// What `create-runs` did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CreateRunsReport {
    /// Outcomes of runs that dead runners of this host had left on its disk.
    pub sent_outcomes: usize,
    /// Runs taken from dead runners, and those that could not be.
    #[serde(flatten)]
    pub rescue: RescueReport,
    /// Runners whose process is dead and that were marked finished.
    pub finished_runners: usize,
    /// What became of schedules whose next time was to be planned.
    pub schedules: Advanced,
    /// Runs created.
    pub created: usize,
    /// Why nobody could be told of what needs somebody.
    pub notify_problem: Option<String>,
    /// Why the program of a hook did not do its work.
    pub hook_problem: Option<String>,
    /// What was deleted because it was kept long enough.
    pub pruned: Pruned,
}

/// A task whose time has come and that got no run.
#[derive(Clone, Debug)]
pub struct Passed {
    /// The task.
    pub task_id: TaskId,
    /// Its class.
    pub class: String,
    /// Why.
    pub reason: NotDue,
}

/// Rescues the runs of dead runners, lets schedules go on, creates one run for every due task, and prunes a part.
/// `created` hears the number so far. A part that finds no room on the disk keeps no other from its work: pruning is what makes
/// room.
///
/// # Errors
/// The database's; where there was no room for a part, at the end of all.
pub fn create_runs(ctx: &mut Context, created: &mut dyn FnMut(usize)) -> EngineResult<CreateRunsReport> {
    look_after_and(ctx, |store| store.create_missing_runs(created))
}

/// The same without creating runs, for a worker, which does that with its claims.
///
/// # Errors
/// As of [`create_runs`].
pub(crate) fn look_after(ctx: &mut Context) -> EngineResult<CreateRunsReport> {
    look_after_and(ctx, |_| Ok(0))
}

fn look_after_and(
    ctx: &mut Context,
    create: impl FnOnce(&mut Store) -> StoreResult<usize>,
) -> EngineResult<CreateRunsReport> {
    let mut full = None;
    // Before the rescue: a run whose outcome is known on this host has ended, however dead its runner is.
    let sent_outcomes = unless_full(send_left_over(ctx), &mut full)?;
    fault_point!("create.left_over_sent");
    let settings = ctx.store.settings()?;
    let rescue = unless_full(rescue_runs(ctx, &settings), &mut full)?;
    let sent_outcomes = sent_outcomes + rescue.sent_outcomes;
    fault_point!("create.rescued");
    let finished_runners = unless_full(finish_dead_runners(ctx, settings.lease), &mut full)?;
    fault_point!("create.runners_finished");
    let needs = ctx.store.cleanup_needs(&settings.retention).map(Some).map_err(EngineError::from);
    let needs = unless_full(needs, &mut full)?.unwrap_or(CleanupNeeds::ALL);
    if needs.pauses {
        unless_full(remove_ended(ctx).map(drop), &mut full)?;
    }
    let author = Author { name: &ctx.me.user, host: &ctx.me.host };
    let schedules = ctx.store.advance_schedules(author, settings.schedule_grace_secs).map_err(EngineError::from);
    let schedules = unless_full(schedules, &mut full)?;
    let created = unless_full(create(&mut ctx.store).map_err(EngineError::from), &mut full)?;
    // Last: nobody waits for it.
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
        schedules,
        created,
        notify_problem,
        hook_problem,
        pruned,
    })
}

/// Nothing where there was no room, which is kept for the end.
fn unless_full<T: Default>(result: EngineResult<T>, full: &mut Option<EngineError>) -> EngineResult<T> {
    match result {
        Err(error @ EngineError::Store(StoreError::Full { .. })) => {
            full.get_or_insert(error);
            Ok(T::default())
        }
        result => result,
    }
}

/// Up to `limit` tasks whose time has come and that have no new run, with the first reason why not.
///
/// # Errors
/// The database's.
pub fn list_passed_tasks(ctx: &mut Context, limit: i64) -> EngineResult<Vec<Passed>> {
    let now = ctx.store.now()?;
    let mut tasks = ctx.store.list_unknown_tasks(limit)?;
    for status in [TaskStatus::Failed, TaskStatus::Timeout, TaskStatus::Scheduled, TaskStatus::Processing] {
        tasks.extend(ctx.store.list_passed_tasks(status, limit)?);
    }
    let passed = tasks.into_iter().filter_map(|task| {
        let reason = is_due(&due_facts(&task), now).err().filter(|reason| *reason != NotDue::NotYet)?;
        Some(Passed { task_id: task.id, class: task.class.to_string(), reason })
    });
    Ok(passed.take(usize::try_from(limit).unwrap_or(usize::MAX)).collect())
}

/// What the due rule looks at.
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
