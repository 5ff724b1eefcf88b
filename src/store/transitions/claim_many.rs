//! Many runs pass to processing at once, for a runner with many slots: under the lock of the claim like one, with the same
//! rules, and in a few statements. Where no run waits, due tasks are started without a run that waits in between.

use std::collections::HashSet;
use std::time::Duration;

use chrono::{DateTime, Utc};
use diesel::prelude::*;

use super::super::audit::Origin;
use super::super::backend::batch::{self, DueRow, Start, StartedRow, Starter};
use super::super::backend::{self, AnyConnection};
use super::super::limits::Obstacles;
use super::super::schema::{task_queue, task_queue_runs};
use super::super::sql::{Moment, db_now};
use super::super::{Store, StoreResult};
use super::claim::{Claim, ENDS_PER_TRANSACTION, Head, claim_run, first_claimable, load_claimed, next_head};
use super::low_water::LowWater;
use crate::domain::ids::{RunId, TaskId};
use crate::domain::records::ClaimedRun;

/// When there may be something to claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// At once.
    Now,
    /// In so long, when the next task becomes due.
    In(Duration),
    /// Nobody knows.
    Nothing,
}

fn next_due(conn: &mut AnyConnection) -> StoreResult<Outlook> {
    let dues = task_queue::table.filter(task_queue::due_on.is_not_null()).order((task_queue::due_on, task_queue::id));
    let next: Option<(Option<Moment>, Moment)> = dues.select((task_queue::due_on, db_now())).first(conn).optional()?;
    let Some((Some(due_on), now)) = next else { return Ok(Outlook::Nothing) };
    let wait = DateTime::<Utc>::from(due_on) - DateTime::<Utc>::from(now);
    Ok(wait.to_std().map_or(Outlook::Now, |wait| if wait.is_zero() { Outlook::Now } else { Outlook::In(wait) }))
}

/// What a claim of many has found.
#[derive(Clone, Debug, Default)]
pub struct ManyClaimed {
    /// The runs that are ours now, in the order in which they are to be executed.
    pub runs: Vec<ClaimedRun>,
    /// Whether tasks are due that must get their runs from `create-runs` before they can be claimed.
    pub needs_runs: bool,
}

impl Store {
    /// When there may be something to claim: a run that can be executed here, or a task that is due. Locks nothing.
    ///
    /// # Errors
    /// The database could not be asked.
    pub fn look_for_work(&mut self, runner_name: &str, is_runnable: &dyn Fn(&str) -> bool) -> StoreResult<Outlook> {
        self.read(|conn| {
            if batch::is_calm(conn)? {
                return next_due(conn);
            }
            let mut obstacles = Obstacles::load(conn, runner_name)?;
            if obstacles.is_closed() {
                return Ok(Outlook::Nothing);
            }
            if first_claimable(conn, is_runnable, None, &mut obstacles)?.is_some() {
                return Ok(Outlook::Now);
            }
            next_due(conn)
        })
    }

    /// Whether a run waits of a class that can be executed by a runner of this name, and that nothing keeps it from claiming.
    /// Locks nothing.
    ///
    /// # Errors
    /// The database could not be asked.
    pub fn sees_claimable(&mut self, runner_name: &str, is_runnable: &dyn Fn(&str) -> bool) -> StoreResult<bool> {
        self.read(|conn| {
            let mut obstacles = Obstacles::load(conn, runner_name)?;
            Ok(!obstacles.is_closed() && first_claimable(conn, is_runnable, None, &mut obstacles)?.is_some())
        })
    }

    /// Claims the first runs that can be executed here (rule R6), at most one for each of these tokens; where there are not so
    /// many, it starts the first due tasks as well.
    ///
    /// # Errors
    /// The database could not be written; nothing was claimed then, unless the answer to a COMMIT was lost.
    pub fn claim_runs(&mut self, claim: &Claim<'_>, tokens: &[String]) -> StoreResult<ManyClaimed> {
        match self.start_beside_others(claim, tokens)? {
            Shared::Done(claimed) => Ok(claimed),
            Shared::NeedsLock { is_repeated } => self.claim_alone(claim, tokens, is_repeated),
        }
    }

    fn start_beside_others(&mut self, claim: &Claim<'_>, tokens: &[String]) -> StoreResult<Shared> {
        if self.auditor()?.is_some() {
            return Ok(Shared::NeedsLock { is_repeated: false });
        }
        let (mut is_repeated, remembered) = (false, self.low_water);
        let (shared, low_water) = self.shared_claim_write(|conn| {
            let mut low_water = remembered;
            let shared = claim_beside_others(conn, claim, tokens, is_repeated, &mut low_water)?;
            // From here on an error may be that of a COMMIT which happened.
            is_repeated = true;
            fault_point!("claim_many.before_shared_commit");
            Ok((shared, low_water))
        })?;
        self.low_water = low_water;
        Ok(shared)
    }

    pub(super) fn claim_alone(
        &mut self,
        claim: &Claim<'_>,
        tokens: &[String],
        mut is_repeated: bool,
    ) -> StoreResult<ManyClaimed> {
        let auditor = self.auditor()?;
        self.claim_write(auditor.is_some(), |conn| {
            fault_point!("claim_many.locked");
            let mut low_water = LowWater::default();
            let claimed = claim_under_lock(conn, claim, tokens, is_repeated, auditor.as_ref(), &mut low_water)?;
            // From here on an error may be that of a COMMIT which happened.
            is_repeated = true;
            fault_point!("claim_many.before_commit");
            Ok(claimed)
        })
    }
}

/// What came of a claim beside others.
pub(super) enum Shared {
    Done(ManyClaimed),
    /// Something waits that only whoever holds the lock alone may claim, or an earlier attempt may have claimed.
    NeedsLock {
        is_repeated: bool,
    },
}

/// Where no run waits that can be executed here, due tasks are started while others do the same and ends are written: nothing
/// is counted, so the locks of the rows will do.
pub(super) fn claim_beside_others(
    conn: &mut AnyConnection,
    claim: &Claim<'_>,
    tokens: &[String],
    is_repeated: bool,
    low_water: &mut LowWater,
) -> StoreResult<Shared> {
    if backend::excludes_all(conn) {
        return claim_under_lock(conn, claim, tokens, is_repeated, None, low_water).map(Shared::Done);
    }
    // Only whoever holds the lock alone waits for a COMMIT that may still be under way.
    if is_repeated {
        low_water.forget();
        return Ok(Shared::NeedsLock { is_repeated });
    }
    if batch::is_calm(conn)? {
        return start_due(conn, claim, tokens, None, low_water).map(Shared::Done);
    }
    let obstacles = Obstacles::load(conn, claim.runner_name)?;
    if obstacles.is_closed() {
        return Ok(Shared::Done(ManyClaimed::default()));
    }
    // Also one that may not be claimed now: while others end runs, it may be in the next moment.
    if some_run_waits(conn, claim.is_runnable)? {
        return Ok(Shared::NeedsLock { is_repeated });
    }
    start_due(conn, claim, tokens, Some(&obstacles), low_water).map(Shared::Done)
}

fn claim_under_lock(
    conn: &mut AnyConnection,
    claim: &Claim<'_>,
    tokens: &[String],
    is_repeated: bool,
    auditor: Option<&Origin>,
    low_water: &mut LowWater,
) -> StoreResult<ManyClaimed> {
    // Only an attempt whose COMMIT came to nothing, or whose answer was lost, can have claimed with these tokens.
    if is_repeated {
        low_water.forget();
        let runs = already_claimed(conn, tokens)?;
        if !runs.is_empty() {
            return Ok(ManyClaimed { runs, needs_runs: false });
        }
    }
    if auditor.is_none() && batch::is_calm(conn)? {
        return start_due(conn, claim, tokens, None, low_water);
    }
    let mut obstacles = Obstacles::load(conn, claim.runner_name)?;
    if obstacles.is_closed() {
        return Ok(ManyClaimed::default());
    }
    let mut runs = claim_waiting(conn, claim, tokens, &mut obstacles, auditor)?;
    let rest = tokens.get(runs.len()..).unwrap_or_default();
    if rest.is_empty() {
        return Ok(ManyClaimed { runs, needs_runs: false });
    }
    if auditor.is_some() {
        // What keeps each transition needs each run by itself.
        let needs_runs = !batch::list_due(conn, None, 1)?.is_empty();
        return Ok(ManyClaimed { runs, needs_runs });
    }
    let due = start_due(conn, claim, rest, Some(&obstacles), low_water)?;
    runs.extend(due.runs);
    Ok(ManyClaimed { runs, needs_runs: due.needs_runs })
}

impl<'a> Claim<'a> {
    fn starter(&self) -> Starter<'a> {
        Starter {
            runner_id: self.runner_id.0,
            process_id: self.process_id,
            host: self.host,
            process_identity: self.process_identity,
            lease_secs: self.lease_secs,
        }
    }
}

fn already_claimed(conn: &mut AnyConnection, tokens: &[String]) -> StoreResult<Vec<ClaimedRun>> {
    use task_queue_runs::dsl;
    let mut ours: Vec<(i64, Option<String>)> = dsl::task_queue_runs
        .filter(dsl::running_class.is_not_null())
        .filter(dsl::token.eq_any(tokens))
        .select((dsl::id, dsl::token))
        .load(conn)?;
    ours.sort_unstable();
    ours.into_iter().map(|(run_id, token)| load_claimed(conn, run_id, &token.unwrap_or_default())).collect()
}

/// Whether a run waits of a class that can be executed here.
fn some_run_waits(conn: &mut AnyConnection, is_runnable: &dyn Fn(&str) -> bool) -> StoreResult<bool> {
    let mut last_class = String::new();
    while let Some((Some(class), _, _)) = next_head(conn, &last_class, None)? {
        if is_runnable(&class) {
            return Ok(true);
        }
        last_class = class;
    }
    Ok(false)
}

fn claim_waiting(
    conn: &mut AnyConnection,
    claim: &Claim<'_>,
    tokens: &[String],
    obstacles: &mut Obstacles<'_>,
    auditor: Option<&Origin>,
) -> StoreResult<Vec<ClaimedRun>> {
    let heads = first_claimables(conn, claim.is_runnable, tokens.len(), obstacles)?;
    if heads.is_empty() {
        return Ok(Vec::new());
    }
    let starts: Vec<Start<'_>> =
        heads.iter().zip(tokens).map(|((_, run_id, _), token)| Start { run_id: *run_id, token }).collect();
    // What keeps each transition needs each run by itself.
    let started = if auditor.is_none() { batch::start_runs(conn, &claim.starter(), &starts)? } else { Vec::new() };
    fault_point!("claim_many.runs_written");
    let known: HashSet<i64> = started.iter().map(|row| row.run_id).collect();
    let mut claimed: Vec<ClaimedRun> = started.into_iter().map(ClaimedRun::from).collect();
    let mut ended = 0;
    for start in starts.iter().filter(|start| !known.contains(&start.run_id)) {
        match claim_run(conn, &claim.holder(start.token), start.run_id, auditor)? {
            Some(run) => claimed.push(run),
            // It belongs to no task, or to one that was cancelled, and has ended. For some milliseconds nobody else can claim.
            None => ended += 1,
        }
        if ended >= ENDS_PER_TRANSACTION {
            break;
        }
    }
    let place = |run: &ClaimedRun| heads.iter().position(|(_, run_id, _)| *run_id == run.run_id.0);
    claimed.sort_by_key(place);
    Ok(claimed)
}

/// The first `count` of the queue among the classes that can be executed here and that nothing stands in the way of; of a
/// class with limits as many as they leave room for.
fn first_claimables(
    conn: &mut AnyConnection,
    is_runnable: &dyn Fn(&str) -> bool,
    count: usize,
    obstacles: &mut Obstacles<'_>,
) -> StoreResult<Vec<Head>> {
    if count == 1 {
        return Ok(first_claimable(conn, is_runnable, None, obstacles)?.into_iter().collect());
    }
    let mut heads: Vec<Head> = Vec::new();
    let mut last_class = String::new();
    while let Some((Some(class), _, _)) = next_head(conn, &last_class, None)? {
        if is_runnable(&class) {
            let room = obstacles.room_for(conn, &class, count)?;
            heads.extend(heads_of_class(conn, &class, room)?);
        }
        last_class = class;
    }
    heads.sort_by_key(|(_, run_id, order)| (*order, *run_id));
    heads.truncate(count);
    Ok(heads)
}

fn heads_of_class(conn: &mut AnyConnection, class: &str, count: usize) -> StoreResult<Vec<Head>> {
    use task_queue_runs::dsl;
    if count == 0 {
        return Ok(Vec::new());
    }
    let of_class = dsl::task_queue_runs
        .filter(dsl::claim_class.eq(class))
        .order((dsl::claim_class, dsl::claim_order, dsl::id))
        .limit(i64::try_from(count).unwrap_or(i64::MAX));
    let rows: Vec<(i64, i32)> = of_class.select((dsl::id, dsl::claim_order)).load(conn)?;
    Ok(rows.into_iter().map(|(run_id, order)| (class.to_owned(), run_id, order)).collect())
}

/// Starts the first due tasks, unless one of those that are due has to have its turn among runs: then all get their runs, by
/// `create-runs`, and the order of the runs decides.
/// Starts the first due tasks, unless one of them must have its turn among runs. Without `obstacles` there are none, and no due
/// task has a priority.
fn start_due(
    conn: &mut AnyConnection,
    claim: &Claim<'_>,
    tokens: &[String],
    obstacles: Option<&Obstacles<'_>>,
    low_water: &mut LowWater,
) -> StoreResult<ManyClaimed> {
    let due = list_due(conn, tokens.len(), low_water)?;
    if due.is_empty() {
        return Ok(ManyClaimed::default());
    }
    let mut is_plain = !due.iter().any(|task| task.is_special);
    for class in due.iter().map(|task| task.class.as_str()).collect::<HashSet<_>>() {
        let is_free = obstacles.is_none_or(|obstacles| obstacles.is_free(class));
        is_plain = is_plain && (claim.is_runnable)(class) && is_free;
    }
    if !is_plain || obstacles.is_some() && batch::has_due_with_priority(conn)? {
        return Ok(ManyClaimed { runs: Vec::new(), needs_runs: true });
    }
    let tasks: Vec<(&DueRow, &str)> = due.iter().zip(tokens.iter().map(String::as_str)).collect();
    let runs = batch::start_tasks(conn, &claim.starter(), &tasks)?;
    fault_point!("claim_many.tasks_started");
    let claimed = runs.into_iter().zip(tasks).map(|(run_id, (task, token))| claimed_task(run_id, task, token));
    Ok(ManyClaimed { runs: claimed.collect(), needs_runs: false })
}

/// The first due tasks, from where the last look has left off. Where that does not give all that were asked for, they are looked
/// for from the beginning: nothing is overlooked by whoever runs dry.
fn list_due(conn: &mut AnyConnection, count: usize, low_water: &mut LowWater) -> StoreResult<Vec<DueRow>> {
    let limit = i64::try_from(count).unwrap_or(i64::MAX);
    let mut from = low_water.place();
    let mut due = batch::list_due(conn, from, limit)?;
    if from.is_some() && due.len() < count {
        from = None;
        due = batch::list_due(conn, from, limit)?;
    }
    match due.last() {
        Some(last) => low_water.rise(from, last.due_on),
        None => low_water.forget(),
    }
    Ok(due)
}

fn claimed_task(run_id: i64, task: &DueRow, token: &str) -> ClaimedRun {
    ClaimedRun {
        run_id: RunId(run_id),
        task_id: TaskId(task.task_id),
        class: task.class.clone(),
        data: task.data.clone(),
        token: token.to_owned(),
        attempt: task.attempts.saturating_add(1),
        max_retries: task.max_retries,
        task_timeout_secs: task.timeout_secs,
        planned_on: task.planned_on.into(),
        started_on: task.seen_on.into(),
    }
}

impl From<StartedRow> for ClaimedRun {
    fn from(row: StartedRow) -> Self {
        Self {
            run_id: RunId(row.run_id),
            task_id: TaskId(row.task_id),
            class: row.class,
            data: row.data,
            token: row.token,
            attempt: row.attempt,
            max_retries: row.max_retries,
            task_timeout_secs: row.timeout_secs,
            planned_on: row.planned_on.into(),
            started_on: row.started_on.into(),
        }
    }
}
