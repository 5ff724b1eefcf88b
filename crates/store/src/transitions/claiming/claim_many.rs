//! Claims many runs at once, for a runner with many slots: under the lock of the claim with the same rules as one run, in few
//! statements. If no run is waiting, due tasks are started directly, without a waiting run.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::prelude::*;

use crate::backend;
use crate::backend::batch::{self, DueRow, DueTaskFacts, Start, TaskStart};
use crate::base::connection::AnyConnection;
use crate::base::content::Content;
use crate::base::low_water::LowWater;
use crate::base::schema::task_queue;
use crate::base::sql::{SqlMoment, db_now};
use crate::base::unmarked::open_run;
use crate::reading::heads::{first_claimable, first_claimables, is_any_waiting};
use crate::rules::limits::Obstacles;
use crate::session::origin::Origin;
use crate::transitions::claiming::claim::{Claim, ClaimSource};
use crate::transitions::claiming::start::{ENDS_PER_TRANSACTION, already_claimed, claimed_run, start_waiting};
use crate::transitions::ending::set_aside::UnreadableRuns;
use crate::{Store, StoreResult};
use taskqueue_domain::task::choosing::class_set::ClassSet;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_domain::task::task_class::TaskClass;

/// When there may be work to claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextWork {
    /// Now.
    Now,
    /// After this time, when the next task becomes due.
    In(Duration),
    /// Unknown.
    Nothing,
}

fn next_due(conn: &mut AnyConnection) -> StoreResult<NextWork> {
    let dues = task_queue::table.filter(task_queue::due_on.is_not_null()).filter(open_run().is_null());
    let dues = dues.order((task_queue::due_on, task_queue::id));
    let next: Option<(Option<SqlMoment>, SqlMoment)> =
        dues.select((task_queue::due_on, db_now())).first(conn).optional()?;
    let Some((Some(due_on), now)) = next else { return Ok(NextWork::Nothing) };
    let wait = DateTime::<Utc>::from(due_on) - DateTime::<Utc>::from(now);
    Ok(wait.to_std().map_or(NextWork::Now, |wait| if wait.is_zero() { NextWork::Now } else { NextWork::In(wait) }))
}

/// The result of a batch claim.
#[derive(Clone, Debug, Default)]
pub struct ManyClaimed {
    /// The claimed runs, in the order in which they are to be executed.
    pub runs: Vec<ClaimedRun>,
    /// Whether due tasks need runs from `create-runs` before they can be claimed.
    pub needs_runs: bool,
    /// Whether waiting runs took all tokens, so that due tasks were not checked.
    pub has_skipped_due: bool,
    /// The claimed runs that cannot be passed to a handler.
    pub(crate) aside: UnreadableRuns,
    /// Whether runs ended instead of being claimed.
    pub(crate) has_ended_some: bool,
    /// Tasks that were not claimed because their time to start has passed.
    pub(crate) expired: Vec<TaskId>,
    /// Late tasks of schedules, which were not claimed: their schedule must be moved on first, and may skip them.
    pub late: Vec<TaskId>,
    /// Whether nothing was claimed because enough other claims are in progress.
    pub is_crowded: bool,
}

impl Store {
    /// Returns when there may be work to claim: a run that can be executed here, or a due task. Locks nothing.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn poll_for_work(&mut self, runner_name: &str, classes: &ClassSet<'_>) -> StoreResult<NextWork> {
        self.read(|conn| {
            if batch::nothing_restricts_claims(conn)? {
                return next_due(conn);
            }
            let mut obstacles = Obstacles::load(conn, runner_name)?;
            if obstacles.is_closed() {
                return Ok(NextWork::Nothing);
            }
            if first_claimable(conn, classes, None, &mut obstacles)?.is_some() {
                return Ok(NextWork::Now);
            }
            next_due(conn)
        })
    }

    /// Returns true if a run of any class is waiting. Locks nothing.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn has_waiting_runs(&mut self) -> StoreResult<bool> {
        self.read(|conn| Ok(is_any_waiting(conn)?))
    }

    /// Returns true if a waiting run belongs to one of these classes and nothing blocks a runner of this name from claiming it.
    /// Locks nothing.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn sees_claimable(&mut self, runner_name: &str, classes: &ClassSet<'_>) -> StoreResult<bool> {
        self.read(|conn| {
            let mut obstacles = Obstacles::load(conn, runner_name)?;
            Ok(!obstacles.is_closed() && first_claimable(conn, classes, None, &mut obstacles)?.is_some())
        })
    }

    /// Claims the first runs that can be executed here (rule R6), at most one for each of these tokens. If there are fewer, also
    /// starts the first due tasks.
    ///
    /// # Errors
    /// The database could not be written; nothing was claimed then, unless the answer to a COMMIT was lost.
    pub fn claim_runs(&mut self, claim: &Claim<'_>, tokens: &[String]) -> StoreResult<ManyClaimed> {
        let shared = self.start_beside_others(claim, tokens)?;
        let claimed = self.finish_claim(shared, claim, tokens)?;
        if !claimed.has_ended_some || !claimed.runs.is_empty() {
            return Ok(claimed);
        }
        // Once more, for what stands behind a few expired tasks. `create-runs`, which is needed now, ends many at once.
        let shared = self.start_beside_others(claim, tokens)?;
        self.finish_claim(shared, claim, tokens)
    }

    /// Claims under the lock if necessary, and sets aside runs that cannot be passed to a handler.
    pub(crate) fn finish_claim(
        &mut self,
        shared: SharedClaim,
        claim: &Claim<'_>,
        tokens: &[String],
    ) -> StoreResult<ManyClaimed> {
        let mut claimed = match shared {
            SharedClaim::Done(claimed) => claimed,
            SharedClaim::NeedsLock { is_repeated } => {
                self.claim_alone(claim, tokens, is_repeated, ClaimSource::RunsAndDueTasks)?
            }
        };
        // Runs may be waiting behind those that were set aside or have expired.
        claimed.needs_runs |= !claimed.aside.is_empty() || !claimed.expired.is_empty();
        self.set_aside(std::mem::take(&mut claimed.aside));
        self.end_expired_of_claim(&mut claimed)?;
        Ok(claimed)
    }

    fn start_beside_others(&mut self, claim: &Claim<'_>, tokens: &[String]) -> StoreResult<SharedClaim> {
        if self.auditor()?.is_some() {
            return Ok(SharedClaim::NeedsLock { is_repeated: false });
        }
        let (mut is_repeated, remembered) = (false, self.low_water);
        let (shared, low_water) = self.shared_claim_write(|conn| {
            let mut low_water = remembered;
            let shared = claim_beside_others(conn, claim, tokens, is_repeated, &mut low_water)?;
            // An error after this point may belong to a COMMIT that succeeded.
            is_repeated = true;
            fault_point!("claim_many.before_shared_commit");
            Ok((shared, low_water))
        })?;
        self.low_water = low_water;
        Ok(shared)
    }

    /// Ends the expired tasks that a claim has found.
    pub(crate) fn end_expired_of_claim(&mut self, claimed: &mut ManyClaimed) -> StoreResult<()> {
        let expired = std::mem::take(&mut claimed.expired);
        claimed.has_ended_some |= !expired.is_empty();
        match self.end_expired(&expired) {
            // An error here must not lose the claimed runs: `create-runs` ends the tasks too.
            Err(error) if claimed.runs.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// Claims under the lock of all claims. If `is_repeated`, an earlier attempt may have claimed with these tokens.
    pub(crate) fn claim_alone(
        &mut self,
        claim: &Claim<'_>,
        tokens: &[String],
        mut is_repeated: bool,
        source: ClaimSource,
    ) -> StoreResult<ManyClaimed> {
        let auditor = self.auditor()?;
        self.claim_write(auditor.is_some(), |conn| {
            fault_point!("claim.locked");
            let mut low_water = (source == ClaimSource::RunsAndDueTasks).then(LowWater::default);
            let (auditor, low_water) = (auditor.as_ref(), low_water.as_mut());
            let claimed = claim_under_lock(conn, claim, tokens, is_repeated, auditor, low_water)?;
            // An error after this point may belong to a COMMIT that succeeded.
            is_repeated = true;
            fault_point!("claim.before_commit");
            Ok(claimed)
        })
    }
}

/// The result of a concurrent claim.
pub(crate) enum SharedClaim {
    Done(ManyClaimed),
    /// Some work may be claimed only under the exclusive lock, or an earlier attempt may have claimed.
    NeedsLock {
        is_repeated: bool,
    },
}

/// Starts due tasks concurrently with other claims and with ends, if no executable run is waiting: nothing is counted, so row
/// locks are sufficient.
pub(crate) fn claim_beside_others(
    conn: &mut AnyConnection,
    claim: &Claim<'_>,
    tokens: &[String],
    is_repeated: bool,
    low_water: &mut LowWater,
) -> StoreResult<SharedClaim> {
    if backend::excludes_all(conn) {
        return claim_under_lock(conn, claim, tokens, is_repeated, None, Some(low_water)).map(SharedClaim::Done);
    }
    // Only the exclusive lock waits for a COMMIT that may still be in progress.
    if is_repeated {
        low_water.forget();
        return Ok(SharedClaim::NeedsLock { is_repeated });
    }
    if !backend::take_lane(conn, tokens.len())? {
        return Ok(SharedClaim::Done(ManyClaimed { is_crowded: true, ..ManyClaimed::default() }));
    }
    if batch::nothing_restricts_claims(conn)? {
        return start_due(conn, claim, &unused(tokens, &[]), None, low_water).map(SharedClaim::Done);
    }
    let obstacles = Obstacles::load(conn, claim.runner_name)?;
    if obstacles.is_closed() {
        return Ok(SharedClaim::Done(ManyClaimed::default()));
    }
    // Also a run that may not be claimed now: another process may end a run at any moment, which makes it claimable.
    if first_claimable(conn, &claim.classes, None, &mut Obstacles::none())?.is_some() {
        return Ok(SharedClaim::NeedsLock { is_repeated });
    }
    start_due(conn, claim, &unused(tokens, &[]), Some(&obstacles), low_water).map(SharedClaim::Done)
}

/// Without a low-water mark, only waiting runs are claimed.
fn claim_under_lock(
    conn: &mut AnyConnection,
    claim: &Claim<'_>,
    tokens: &[String],
    is_repeated: bool,
    auditor: Option<&Origin>,
    mut low_water: Option<&mut LowWater>,
) -> StoreResult<ManyClaimed> {
    // Only an attempt whose COMMIT failed, or whose answer was lost, can have claimed with these tokens.
    if is_repeated {
        if let Some(low_water) = &mut low_water {
            low_water.forget();
        }
        let earlier = already_claimed(conn, tokens)?;
        if !earlier.runs.is_empty() || !earlier.aside.is_empty() {
            return Ok(ManyClaimed { runs: earlier.runs, aside: earlier.aside, ..ManyClaimed::default() });
        }
    }
    if let Some(low_water) = &mut low_water
        && auditor.is_none()
        && batch::nothing_restricts_claims(conn)?
    {
        return start_due(conn, claim, &unused(tokens, &[]), None, low_water);
    }
    let mut obstacles = Obstacles::load(conn, claim.runner_name)?;
    if obstacles.is_closed() {
        return Ok(ManyClaimed::default());
    }
    let mut claimed = claim_waiting(conn, claim, tokens, &mut obstacles, auditor)?;
    // A run that is to be set aside has one of the tokens until it has ended: the next claim continues.
    let goes_on = claimed.aside.is_empty() && claimed.expired.is_empty();
    let rest = if goes_on { unused(tokens, &claimed.runs) } else { Vec::new() };
    claimed.has_skipped_due = low_water.is_some() && claimed.runs.len() == tokens.len();
    let Some(low_water) = low_water.filter(|_| !rest.is_empty()) else { return Ok(claimed) };
    if auditor.is_some() {
        // Recording each transition requires separate runs.
        claimed.needs_runs = !batch::list_due(conn, None, 1)?.is_empty();
        return Ok(claimed);
    }
    let due = start_due(conn, claim, &rest, Some(&obstacles), low_water)?;
    claimed.runs.extend(due.runs);
    (claimed.expired, claimed.late) = (due.expired, due.late);
    claimed.needs_runs = due.needs_runs;
    Ok(claimed)
}

/// Claims the first waiting runs. Continues while it finds runs that have to end instead.
fn claim_waiting<'a>(
    conn: &mut AnyConnection,
    claim: &Claim<'a>,
    tokens: &[String],
    obstacles: &mut Obstacles<'a>,
    auditor: Option<&Origin>,
) -> StoreResult<ManyClaimed> {
    let (mut claimed, mut ended) = (ManyClaimed::default(), 0);
    loop {
        let free = unused(tokens, &claimed.runs);
        let heads = first_claimables(conn, &claim.classes, None, free.len(), obstacles)?;
        if heads.is_empty() {
            break;
        }
        let starts = heads.iter().zip(&free).map(|((_, run_id, ..), token)| Start { run_id: *run_id, token });
        let started = start_waiting(conn, &claim.holder(), &starts.collect::<Vec<_>>(), auditor)?;
        obstacles.count_starts(conn, &started.runs)?;
        claimed.runs.extend(started.runs);
        claimed.aside = started.aside;
        claimed.expired = started.expired;
        ended += started.ended;
        let has_others = !claimed.aside.is_empty() || !claimed.expired.is_empty();
        if started.ended == 0 || has_others || ended >= ENDS_PER_TRANSACTION {
            break;
        }
        // The new claims may have reached a limit.
        *obstacles = Obstacles::load(conn, claim.runner_name)?;
    }
    claimed.has_ended_some = ended > 0;
    Ok(claimed)
}

/// Returns the tokens that none of these runs has. They are not the last ones: a run that has ended instead has left its token.
fn unused<'a>(tokens: &'a [String], runs: &[ClaimedRun]) -> Vec<&'a str> {
    let used: HashSet<&str> = runs.iter().map(|run| run.token.as_str()).collect();
    tokens.iter().map(String::as_str).filter(|token| !used.contains(token)).collect()
}

/// Starts the first due tasks, unless one of them must be claimed in order with runs. `obstacles` is `None` if there are no
/// obstacles and no due task has a priority.
fn start_due(
    conn: &mut AnyConnection,
    claim: &Claim<'_>,
    tokens: &[&str],
    obstacles: Option<&Obstacles<'_>>,
    low_water: &mut LowWater,
) -> StoreResult<ManyClaimed> {
    let due = list_due(conn, tokens.len(), low_water)?;
    if due.is_empty() {
        return Ok(ManyClaimed::default());
    }
    if due.iter().any(|row| row.facts.is_expired) {
        let expired = due.iter().filter(|row| row.facts.is_expired).map(|row| TaskId(row.facts.task_id));
        return Ok(ManyClaimed { expired: expired.collect(), ..ManyClaimed::default() });
    }
    let late: Vec<TaskId> = due.iter().filter(|row| row.facts.is_late).map(|row| TaskId(row.facts.task_id)).collect();
    if !late.is_empty() {
        return Ok(ManyClaimed { late, ..ManyClaimed::default() });
    }
    // A task that cannot be read is set aside by the claim of its run.
    let readable = due.into_iter().map(|row| Some((row.facts, row.content.read().ok()?))).collect::<Option<Vec<_>>>();
    let plain = readable.filter(|due| !due.iter().any(|(facts, _)| facts.is_special));
    let Some(due) = plain.filter(|due| {
        let classes: HashSet<&TaskClass> = due.iter().map(|(_, content)| &content.class).collect();
        let is_free = |class: &TaskClass| obstacles.is_none_or(|obstacles| obstacles.is_free(class));
        classes.into_iter().all(|class| claim.classes.contains(class) && is_free(class))
    }) else {
        return Ok(ManyClaimed { needs_runs: true, ..ManyClaimed::default() });
    };
    if obstacles.is_some() && batch::has_due_with_priority(conn)? {
        return Ok(ManyClaimed { needs_runs: true, ..ManyClaimed::default() });
    }
    let tasks: Vec<TaskStart<'_>> = due.iter().zip(tokens.iter().copied()).map(start_of).collect();
    let started = batch::start_tasks(conn, &claim.holder(), &tasks)?;
    let runs: HashMap<i64, i64> = started.into_iter().map(|task| (task.task_id, task.run_id)).collect();
    let watched = due.iter().filter(|(facts, _)| facts.is_watched).filter_map(|(facts, _)| runs.get(&facts.task_id));
    batch::mark_started(conn, &watched.copied().collect::<Vec<_>>())?;
    fault_point!("claim_many.tasks_started");
    let claimed = due.into_iter().zip(tokens).filter_map(|((facts, content), token)| {
        let ids = (RunId(*runs.get(&facts.task_id)?), TaskId(facts.task_id));
        Some(claimed_run(ids, (*token).to_owned(), facts.attempts.saturating_add(1), facts.seen_on, content))
    });
    Ok(ManyClaimed { runs: claimed.collect(), ..ManyClaimed::default() })
}

fn start_of<'a>(((facts, content), token): (&'a (DueTaskFacts, Content), &'a str)) -> TaskStart<'a> {
    TaskStart { task_id: facts.task_id, class: &content.class, attempt: facts.attempts.saturating_add(1), token }
}

/// Returns the first due tasks, starting where the last scan stopped. If that returns too few, scans again from the beginning, so
/// that no task is missed.
fn list_due(conn: &mut AnyConnection, count: usize, low_water: &mut LowWater) -> StoreResult<Vec<DueRow>> {
    let limit = i64::try_from(count).unwrap_or(i64::MAX);
    let mut from = low_water.place();
    let mut due = batch::list_due(conn, from, limit)?;
    if from.is_some() && due.len() < count {
        from = None;
        due = batch::list_due(conn, from, limit)?;
    }
    match due.last() {
        Some(last) => low_water.rise(from, last.facts.due_on),
        None => low_water.forget(),
    }
    Ok(due)
}
