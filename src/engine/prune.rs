//! `prune`: what is finished is deleted once it was kept long enough; some of it by each `create-runs`. And what somebody
//! selects, however old it is.

use super::selected::{Hear, PORTION, TaskAnswer};
use super::{Context, EngineResult};
use crate::domain::ids::TaskId;
use crate::domain::retention::{Kept, Retention};
use crate::domain::status::TaskStatus;
pub use crate::store::Pruned;
use crate::store::{PrunePlace, PruneRule, PruneVerdict, PruneWindow};

/// Parts that a `create-runs` deletes of each kind: it is called again soon.
const PARTS_OF_CREATE_RUNS: usize = 10;

/// What is to be pruned, beyond what the settings say.
#[derive(Clone, Debug, Default)]
pub struct PruneRequest {
    /// Finished tasks of this age in seconds; `None` leaves age and number to the settings.
    pub older_than_secs: Option<i64>,
    /// Tasks in these statuses alone; empty means all.
    pub statuses: Vec<TaskStatus>,
    /// Tasks of this class alone.
    pub class: Option<String>,
}

impl PruneRequest {
    /// Whether it asks for something else than what the settings say.
    #[must_use]
    pub const fn is_own_choice(&self) -> bool {
        self.older_than_secs.is_some() || self.class.is_some() || !self.statuses.is_empty()
    }

    fn rules(&self, retention: &Retention) -> Vec<PruneRule> {
        let asked = |status: &TaskStatus| self.statuses.is_empty() || self.statuses.contains(status);
        let rule = |status| {
            let keep = retention.of(status);
            // The number that is kept is one of all classes together.
            let is_by_settings = self.older_than_secs.is_none() && self.class.is_none();
            PruneRule {
                status,
                class: self.class.clone(),
                older_than_secs: self.older_than_secs.or_else(|| keep.older_than_secs()),
                at_most: if is_by_settings { keep.at_most() } else { None },
            }
        };
        Retention::FINISHED.into_iter().filter(asked).map(rule).collect()
    }
}

/// Deletes a part of what was kept long enough by the settings: the share of one `create-runs`.
///
/// # Errors
/// The database's; what was deleted before stays so.
pub fn prune_some(ctx: &mut Context, retention: &Retention) -> EngineResult<Pruned> {
    prune_parts(ctx, &PruneRequest::default(), retention, PARTS_OF_CREATE_RUNS, &mut |_| {})
}

/// Deletes all of it. `pruned` hears the number of tasks so far.
///
/// # Errors
/// The database's; what was deleted before stays so.
pub fn prune(ctx: &mut Context, request: &PruneRequest, pruned: &mut dyn FnMut(usize)) -> EngineResult<Pruned> {
    let retention = ctx.store.settings()?.retention;
    prune_parts(ctx, request, &retention, usize::MAX, pruned)
}

/// How many tasks [`prune`] would delete.
///
/// # Errors
/// The database's.
pub fn count_prunable(ctx: &mut Context, request: &PruneRequest) -> EngineResult<usize> {
    let retention = ctx.store.settings()?.retention;
    let mut count = 0;
    for rule in request.rules(&retention) {
        let by_age = count_windows(|from| Ok(ctx.store.find_old_tasks(&rule, from)?))?;
        let by_number = count_windows(|from| Ok(ctx.store.find_excess_tasks(&rule, from)?))?;
        // Those of an age and those in excess are the oldest ones, both times.
        count += by_age.max(by_number);
    }
    Ok(count)
}

fn count_windows(mut find: impl FnMut(Option<PrunePlace>) -> EngineResult<PruneWindow>) -> EngineResult<usize> {
    let (mut count, mut from) = (0, None);
    loop {
        let window = find(from)?;
        count += window.count();
        from = window.next;
        if from.is_none() {
            return Ok(count);
        }
    }
}

fn prune_parts(
    ctx: &mut Context,
    request: &PruneRequest,
    retention: &Retention,
    parts: usize,
    pruned: &mut dyn FnMut(usize),
) -> EngineResult<Pruned> {
    let mut total = Pruned::default();
    for rule in request.rules(retention) {
        for is_by_age in [true, false] {
            prune_rule(ctx, &rule, is_by_age, parts, &mut |count| {
                total.tasks += count;
                pruned(total.tasks);
            })?;
        }
    }
    if !request.is_own_choice() {
        prune_the_rest(ctx, retention, parts, &mut total)?;
    }
    Ok(total)
}

/// Each part begins where the one before ended: what could not be deleted is not looked at again.
fn prune_rule(
    ctx: &mut Context,
    rule: &PruneRule,
    is_by_age: bool,
    parts: usize,
    pruned: &mut dyn FnMut(usize),
) -> EngineResult<()> {
    let mut from = None;
    for _ in 0..parts {
        let window = match is_by_age {
            true => ctx.store.find_old_tasks(rule, from)?,
            false => ctx.store.find_excess_tasks(rule, from)?,
        };
        if window.count() > 0 {
            pruned(ctx.store.prune_tasks(rule, &window)?);
        }
        from = window.next;
        if from.is_none() {
            return Ok(());
        }
    }
    Ok(())
}

fn prune_the_rest(ctx: &mut Context, retention: &Retention, parts: usize, total: &mut Pruned) -> EngineResult<()> {
    if let Some(secs) = retention.outputs.older_than_secs() {
        total.outputs += until_nothing_is_left(parts, || Ok(ctx.store.prune_outputs(secs)?))?;
    }
    if let Some(secs) = retention.results.older_than_secs() {
        total.results += until_nothing_is_left(parts, || Ok(ctx.store.prune_results(secs)?))?;
    }
    if let Some(secs) = retention.runners.older_than_secs() {
        total.runners += until_nothing_is_left(parts, || Ok(ctx.store.prune_runners(secs)?))?;
        total.events += until_nothing_is_left(parts, || Ok(ctx.store.prune_events(secs)?))?;
    }
    Ok(())
}

/// Deletes those of these tasks that are finished for good, however old they are, with all that belongs to them.
///
/// # Errors
/// The database's; the tasks before stay deleted.
pub fn prune_selected(ctx: &mut Context, ids: &[TaskId], hear: Hear<'_>) -> EngineResult<()> {
    let mut left = ids.to_vec();
    loop {
        let mut awaited = Vec::new();
        for portion in left.chunks(PORTION) {
            let verdicts = ctx.store.prune_named_tasks(portion)?;
            fault_point!("prune.committed");
            for (id, verdict) in portion.iter().copied().zip(verdicts) {
                match verdict {
                    PruneVerdict::Stays { why: Kept::Awaited, .. } => awaited.push((id, verdict)),
                    verdict => hear(answer(id, verdict, "is deleted")),
                }
            }
        }
        // What waited for them may have gone with a later portion. Dependants are mostly newer: now the newest first.
        if awaited.is_empty() || awaited.len() == left.len() {
            awaited.into_iter().for_each(|(id, verdict)| hear(answer(id, verdict, "is deleted")));
            return Ok(());
        }
        left = awaited.into_iter().rev().map(|(id, _)| id).collect();
    }
}

/// What `prune_selected` would do now; changes nothing.
///
/// # Errors
/// The database's.
pub fn preview_prune(ctx: &mut Context, ids: &[TaskId], hear: Hear<'_>) -> EngineResult<()> {
    let verdicts = ctx.store.judge_tasks(ids)?;
    ids.iter().zip(verdicts).for_each(|(id, verdict)| hear(answer(*id, verdict, "would be deleted")));
    Ok(())
}

fn answer(id: TaskId, verdict: PruneVerdict, done: &str) -> TaskAnswer {
    match verdict {
        PruneVerdict::Goes => TaskAnswer::done(id, "pruned", format!("task {id} {done}")),
        PruneVerdict::Stays { status, why } => TaskAnswer::refused(id, format!("task {id} is {status}; {why}")),
        PruneVerdict::NoSuchTask => TaskAnswer::no_such_task(id),
    }
}

fn until_nothing_is_left(parts: usize, mut prune: impl FnMut() -> EngineResult<usize>) -> EngineResult<usize> {
    let mut total = 0;
    for _ in 0..parts {
        let count = prune()?;
        if count == 0 {
            break;
        }
        total += count;
    }
    Ok(total)
}
