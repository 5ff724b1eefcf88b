//! `prune`: deletes finished tasks past their retention period; each `create-runs` deletes some. It also deletes selected
//! tasks, however old they are.

use chrono::{DateTime, Utc};
use serde_json::json;

use crate::change::selected::{OnAnswer, TaskAnswer, portions};
use crate::context::Context;
use crate::error::EngineResult;
use taskqueue_domain::run::retention::{Kept, Retention};
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Task;
pub use taskqueue_store::Pruned;
use taskqueue_store::{NewEvent, PrunePlace, PruneRule, PruneVerdict, Store, StoreResult};

/// How many parts of each kind one `create-runs` deletes; the next one follows soon.
const PARTS_OF_CREATE_RUNS: usize = 10;
/// How many parts are searched for one that can be deleted, if kept tasks come before it.
const LOOKS_FOR_A_PART: usize = 10;
/// How much of a selection is stored with each event.
const MAX_SELECTION_CHARS: usize = 1_000;

/// Finds the last task that a rule covers.
type FindEnd = fn(&mut Store, &PruneRule) -> StoreResult<Option<PrunePlace>>;

/// By age and by number.
const WAYS_TO_FIND: [FindEnd; 2] = [Store::last_old_task, Store::last_excess_task];

/// What to prune, if it differs from the settings.
#[derive(Clone, Debug, Default)]
pub struct PruneRequest {
    /// The minimum age of finished tasks in seconds; `None` uses the settings for age and number.
    pub older_than_secs: Option<i64>,
    /// Only tasks in these statuses; empty means all.
    pub statuses: Vec<TaskStatus>,
    /// Only tasks of this class.
    pub class: Option<String>,
}

impl PruneRequest {
    /// Returns true if it differs from what the settings define.
    #[must_use]
    pub const fn is_own_choice(&self) -> bool {
        self.older_than_secs.is_some() || self.class.is_some() || !self.statuses.is_empty()
    }

    /// Returns true if it includes tasks with their own retention period. A given age applies only to tasks without one.
    const fn takes_expired(&self) -> bool {
        self.older_than_secs.is_none()
    }

    fn rules(&self, retention: &Retention) -> Vec<PruneRule> {
        let asked = |status: &TaskStatus| self.statuses.is_empty() || self.statuses.contains(status);
        let rule = |status| {
            let keep = retention.of(status);
            // The number of kept tasks counts all classes together.
            let is_by_settings = self.older_than_secs.is_none() && self.class.is_none();
            PruneRule {
                status,
                has_expired: false,
                class: self.class.clone(),
                older_than_secs: self.older_than_secs.or_else(|| keep.older_than_secs()),
                at_most: if is_by_settings { keep.at_most() } else { None },
            }
        };
        let mut rules: Vec<PruneRule> = Retention::FINISHED.into_iter().filter(asked).map(rule).collect();
        if self.takes_expired() {
            let expired = rules.iter().cloned();
            let expired =
                expired.map(|rule| PruneRule { has_expired: true, older_than_secs: None, at_most: None, ..rule });
            rules.extend(expired.collect::<Vec<_>>());
        }
        rules
    }
}

/// Returns when a task can be pruned; `None` if it is unfinished, is kept without a limit, or the settings cannot be read.
pub(crate) fn kept_until(ctx: &mut Context, task: &Task) -> Option<DateTime<Utc>> {
    let settings = task.is_settled().then(|| ctx.store.settings().ok()).flatten()?;
    task.kept_until(&settings.retention)
}

/// Deletes some tasks past the retention period of the settings: the share of one `create-runs`.
///
/// # Errors
/// Returns an error if the database fails; earlier deletions stay.
pub fn prune_some(ctx: &mut Context, retention: &Retention) -> EngineResult<Pruned> {
    let mut total = Pruned::default();
    let share = Share { parts: PARTS_OF_CREATE_RUNS, kept: None };
    prune_parts(ctx, &PruneRequest::default(), retention, &share, &mut total, &mut |_| {})?;
    Ok(total)
}

/// How much is deleted in one call, and the event for it.
struct Share {
    /// The largest number of parts of each kind.
    parts: usize,
    /// The event stored with each part in its transaction; `None` if no operator requested the deletion.
    kept: Option<NewEvent>,
}

/// Deletes everything that the request covers, until this process is asked to stop, and stores an event about each part.
/// `pruned` is called with the number of tasks so far.
///
/// # Errors
/// Returns an error if the database fails; earlier deletions stay.
pub fn prune(ctx: &mut Context, request: &PruneRequest, pruned: &mut dyn FnMut(usize)) -> EngineResult<Pruned> {
    let retention = ctx.store.settings()?.retention;
    let mut total = Pruned::default();
    let mut details = json!(total);
    details["older_than_secs"] = json!(request.older_than_secs);
    details["statuses"] = json!(request.statuses);
    details["class"] = json!(request.class);
    let share = Share { parts: usize::MAX, kept: Some(ctx.operator_event("pruned", details)) };
    prune_parts(ctx, request, &retention, &share, &mut total, pruned)?;
    Ok(total)
}

/// Returns how many tasks [`prune`] would delete.
///
/// # Errors
/// Returns an error if the database fails.
pub fn count_prunable(ctx: &mut Context, request: &PruneRequest) -> EngineResult<usize> {
    let retention = ctx.store.settings()?.retention;
    let mut count = 0;
    for rule in request.rules(&retention) {
        let [by_age, by_number] = WAYS_TO_FIND;
        let mut count_by = |find_end: FindEnd| count_by(ctx, &rule, find_end, request.takes_expired());
        // Both rules cover the oldest tasks, so the larger number includes the smaller.
        count += count_by(by_age)?.max(count_by(by_number)?);
    }
    Ok(count)
}

fn count_by(ctx: &mut Context, rule: &PruneRule, find_end: FindEnd, with_expired: bool) -> EngineResult<usize> {
    let Some(until) = find_end(&mut ctx.store, rule)? else { return Ok(0) };
    let (mut count, mut from) = (0, None);
    loop {
        let window = ctx.store.find_prunable_tasks(rule, from, until)?;
        count += window.count(with_expired);
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
    share: &Share,
    total: &mut Pruned,
    pruned: &mut dyn FnMut(usize),
) -> EngineResult<()> {
    for rule in request.rules(retention) {
        for find_end in WAYS_TO_FIND {
            prune_rule(ctx, &rule, find_end, share, &mut |count| {
                total.tasks += count;
                pruned(total.tasks);
            })?;
        }
    }
    if !request.is_own_choice() {
        prune_the_rest(ctx, retention, share, total)?;
    }
    Ok(())
}

/// Deletes what one rule covers. Each part begins where the previous one ended, so that kept tasks are not read again.
fn prune_rule(
    ctx: &mut Context,
    rule: &PruneRule,
    find_end: FindEnd,
    share: &Share,
    pruned: &mut dyn FnMut(usize),
) -> EngineResult<()> {
    let Some(until) = find_end(&mut ctx.store, rule)? else { return Ok(()) };
    let (mut from, mut deleted) = (None, 0);
    for _ in 0..share.parts.saturating_mul(LOOKS_FOR_A_PART) {
        if ctx.is_stopping() {
            return Ok(());
        }
        let window = ctx.store.find_prunable_tasks(rule, from, until)?;
        if !window.is_empty() {
            pruned(ctx.store.prune_tasks(rule, &window, share.kept.as_ref())?);
            fault_point!("prune.part_committed");
            deleted += 1;
        }
        from = window.next;
        if from.is_none() || deleted == share.parts {
            return Ok(());
        }
    }
    Ok(())
}

fn prune_the_rest(ctx: &mut Context, retention: &Retention, share: &Share, total: &mut Pruned) -> EngineResult<()> {
    if let Some(secs) = retention.outputs.older_than_secs() {
        total.outputs += prune_rows(ctx, share, |store, kept| store.prune_outputs(secs, kept))?;
    }
    total.results += prune_rows(ctx, share, Store::prune_expired_results)?;
    if let Some(secs) = retention.results.older_than_secs() {
        total.results += prune_rows(ctx, share, |store, kept| store.prune_results(secs, kept))?;
    }
    if let Some(secs) = retention.runners.older_than_secs() {
        total.runners += prune_rows(ctx, share, |store, kept| store.prune_runners(secs, kept))?;
        total.events += prune_rows(ctx, share, |store, kept| store.prune_events(secs, kept))?;
    }
    Ok(())
}

/// Deletes those of these tasks that have finished, however old they are, with everything that belongs to them. Stores an event
/// about each portion with deleted tasks; `words` is the selection to store in it.
///
/// # Errors
/// Returns an error if the database fails; earlier tasks stay deleted.
pub fn prune_selected(ctx: &mut Context, ids: &[TaskId], words: &str, on_answer: OnAnswer<'_>) -> EngineResult<()> {
    let selection: String = words.chars().take(MAX_SELECTION_CHARS).collect();
    let event = ctx.operator_event("pruned", json!({ "selection": selection }));
    let mut left = ids.to_vec();
    loop {
        let mut awaited = Vec::new();
        for portion in portions(ctx, &left) {
            let verdicts = ctx.store.prune_named_tasks(portion, Some(&event))?;
            fault_point!("prune.committed");
            for (id, verdict) in portion.iter().copied().zip(verdicts) {
                match verdict {
                    PruneVerdict::Stays { why: Kept::Awaited, .. } => awaited.push((id, verdict)),
                    verdict => on_answer(answer(id, verdict, "is deleted")),
                }
            }
        }
        // The tasks that wait for them may have been deleted with a later portion. Dependent tasks are mostly newer, so retry
        // newest first.
        if awaited.is_empty() || awaited.len() == left.len() {
            awaited.into_iter().for_each(|(id, verdict)| on_answer(answer(id, verdict, "is deleted")));
            return Ok(());
        }
        // The remaining tasks were not processed, nor the tasks that wait for them.
        if ctx.is_stopping() {
            return Ok(());
        }
        left = awaited.into_iter().rev().map(|(id, _)| id).collect();
    }
}

/// Reports what `prune_selected` would do now; changes nothing.
///
/// # Errors
/// Returns an error if the database fails.
pub fn preview_prune(ctx: &mut Context, ids: &[TaskId], on_answer: OnAnswer<'_>) -> EngineResult<()> {
    let verdicts = ctx.store.judge_tasks(ids)?;
    ids.iter().zip(verdicts).for_each(|(id, verdict)| on_answer(answer(*id, verdict, "would be deleted")));
    Ok(())
}

fn answer(id: TaskId, verdict: PruneVerdict, done: &str) -> TaskAnswer {
    match verdict {
        PruneVerdict::Goes => TaskAnswer::done(id, "pruned", format!("task {id} {done}")),
        PruneVerdict::Stays { status, why } => {
            TaskAnswer::refused(id, format!("task {id} has the status {status}; {why}"))
        }
        PruneVerdict::NoSuchTask => TaskAnswer::no_such_task(id),
    }
}

/// Deletes parts until nothing is left or the share is used up.
fn prune_rows(
    ctx: &mut Context,
    share: &Share,
    prune: impl Fn(&mut Store, Option<&NewEvent>) -> StoreResult<usize>,
) -> EngineResult<usize> {
    let mut total = 0;
    for _ in 0..share.parts {
        if ctx.is_stopping() {
            break;
        }
        let count = prune(&mut ctx.store, share.kept.as_ref())?;
        if count == 0 {
            break;
        }
        total += count;
    }
    Ok(total)
}
