//! `prune`: what is finished is deleted once it was kept long enough; some of it by each `create-runs`. And what somebody
//! selects, however old it is.

use chrono::{DateTime, Utc};
use serde_json::json;

use crate::change::selected::{OnAnswer, TaskAnswer, portions};
use crate::{Context, EngineResult};
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::Task;
use taskqueue_domain::time::retention::{Kept, Retention};
pub use taskqueue_store::Pruned;
use taskqueue_store::{NewEvent, PrunePlace, PruneRule, PruneVerdict, Store, StoreResult};

/// Parts that a `create-runs` deletes of each kind: it is called again soon.
const PARTS_OF_CREATE_RUNS: usize = 10;
/// Parts that are looked at for one that is deleted, where what is kept lies before it.
const LOOKS_FOR_A_PART: usize = 10;
/// The part of a selection that is kept with each event.
const MAX_SELECTION_CHARS: usize = 1_000;

/// Finds where the tasks end that a rule reaches.
type FindEnd = fn(&mut Store, &PruneRule) -> StoreResult<Option<PrunePlace>>;

/// By age, and by number.
const WAYS_TO_FIND: [FindEnd; 2] = [Store::last_old_task, Store::last_excess_task];

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

    /// Whether it means tasks that state how long they are kept, too. Who names an age means what states nothing itself.
    const fn takes_expired(&self) -> bool {
        self.older_than_secs.is_none()
    }

    fn rules(&self, retention: &Retention) -> Vec<PruneRule> {
        let asked = |status: &TaskStatus| self.statuses.is_empty() || self.statuses.contains(status);
        let rule = |status| {
            let keep = retention.of(status);
            // The number that is kept is one of all classes together.
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

/// Until when a task is kept; `None` where it is not over, is kept without a limit, or the settings cannot be read.
pub(crate) fn kept_until(ctx: &mut Context, task: &Task) -> Option<DateTime<Utc>> {
    let settings = task.is_settled().then(|| ctx.store.settings().ok()).flatten()?;
    task.kept_until(&settings.retention)
}

/// Deletes a part of what was kept long enough by the settings: the share of one `create-runs`.
///
/// # Errors
/// The database's; what was deleted before stays so.
pub fn prune_some(ctx: &mut Context, retention: &Retention) -> EngineResult<Pruned> {
    let mut total = Pruned::default();
    let share = Share { parts: PARTS_OF_CREATE_RUNS, kept: None };
    prune_parts(ctx, &PruneRequest::default(), retention, &share, &mut total, &mut |_| {})?;
    Ok(total)
}

/// How much of it is deleted at once, and for whom.
struct Share {
    /// The most parts of each kind.
    parts: usize,
    /// What is kept of each part, in its transaction; `None` where no operator wants it.
    kept: Option<NewEvent>,
}

/// Deletes all of it, or what it can until it is asked to stop, and keeps an event of each part. `pruned` hears the number of
/// tasks so far.
///
/// # Errors
/// The database's; what was deleted before stays so.
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

/// How many tasks [`prune`] would delete.
///
/// # Errors
/// The database's.
pub fn count_prunable(ctx: &mut Context, request: &PruneRequest) -> EngineResult<usize> {
    let retention = ctx.store.settings()?.retention;
    let mut count = 0;
    for rule in request.rules(&retention) {
        let [by_age, by_number] = WAYS_TO_FIND;
        let mut count_by = |find_end: FindEnd| count_by(ctx, &rule, find_end, request.takes_expired());
        // Those of an age and those in excess are the oldest ones, both times.
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

/// Each part begins where the one before ended: what could not be deleted is not looked at again.
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

/// Deletes those of these tasks that are finished for good, however old they are, with all that belongs to them, and keeps an
/// event of each portion of which some were. They were selected by these words.
///
/// # Errors
/// The database's; the tasks before stay deleted.
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
        // What waited for them may have gone with a later portion. Dependants are mostly newer: now the newest first.
        if awaited.is_empty() || awaited.len() == left.len() {
            awaited.into_iter().for_each(|(id, verdict)| on_answer(answer(id, verdict, "is deleted")));
            return Ok(());
        }
        // What waited for something that was not reached is not reached either.
        if ctx.is_stopping() {
            return Ok(());
        }
        left = awaited.into_iter().rev().map(|(id, _)| id).collect();
    }
}

/// What `prune_selected` would do now; changes nothing.
///
/// # Errors
/// The database's.
pub fn preview_prune(ctx: &mut Context, ids: &[TaskId], on_answer: OnAnswer<'_>) -> EngineResult<()> {
    let verdicts = ctx.store.judge_tasks(ids)?;
    ids.iter().zip(verdicts).for_each(|(id, verdict)| on_answer(answer(*id, verdict, "would be deleted")));
    Ok(())
}

fn answer(id: TaskId, verdict: PruneVerdict, done: &str) -> TaskAnswer {
    match verdict {
        PruneVerdict::Goes => TaskAnswer::done(id, "pruned", format!("task {id} {done}")),
        PruneVerdict::Stays { status, why } => TaskAnswer::refused(id, format!("task {id} is {status}; {why}")),
        PruneVerdict::NoSuchTask => TaskAnswer::no_such_task(id),
    }
}

/// Until nothing is left, or its share is done.
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
