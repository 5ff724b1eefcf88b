//! Claims by claimants, workers that are not runners of this program. They use the lock and the order of all claims (rule R6),
//! but never get a run of a task that they have rejected.

use std::ops::ControlFlow;

use chrono::{DateTime, Utc};
use diesel::prelude::*;

use crate::backend::batch::{RunHolder, Start};
use crate::base::cells::ShownText;
use crate::base::connection::AnyConnection;
use crate::base::schema::{task_queue, task_queue_runs};
use crate::journal::events::insert_event;
use crate::reading::heads::{Head, HeadFilter, first_claimable};
use crate::records::runs::RunRef;
use crate::rules::leases::lease_end;
use crate::rules::limits::Obstacles;
use crate::session::origin::Origin;
use crate::transitions::claiming::choose::{OutsideClaim, first_chosen};
use crate::transitions::claiming::start::{ENDS_PER_TRANSACTION, StartedRun, load_held, start_waiting};
use crate::transitions::ending::set_aside::UnreadableRuns;
use crate::{Store, StoreResult};
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::ClaimedRun;

/// A name that no runner has: only pauses of everything and of classes apply to claimants.
const NO_RUNNER: &str = "";

/// A run that a claimant has claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideRun {
    /// The run, as a runner would get it.
    pub run: ClaimedRun,
    /// When any worker may take it, unless the lease is renewed.
    pub deadline: DateTime<Utc>,
}

impl Store {
    /// Claims the first runs that are offered, at most one for each secret, all or none.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn claim_outside(&mut self, claim: &OutsideClaim<'_>) -> StoreResult<Vec<OutsideRun>> {
        loop {
            if let ControlFlow::Break(claimed) = self.claim_outside_or_end_some(claim)? {
                return Ok(claimed);
            }
        }
    }

    /// Returns `Continue` when many runs were ended, so that other claims can run in between.
    fn claim_outside_or_end_some(&mut self, claim: &OutsideClaim<'_>) -> StoreResult<ControlFlow<Vec<OutsideRun>>> {
        // The closure runs again after a COMMIT whose answer was lost.
        let mut was_written = false;
        let (auditor, mut aside, mut expired) = (self.auditor()?, UnreadableRuns::default(), Vec::new());
        let claimed = self.claim_write(true, |conn| {
            aside.clear();
            expired.clear();
            fault_point!("outside_claim.locked");
            if was_written {
                let earlier = claimed_before(conn, claim)?;
                if !earlier.is_empty() {
                    return Ok(ControlFlow::Break(earlier));
                }
            }
            let mut claimed = Vec::new();
            let mut ends_left = ENDS_PER_TRANSACTION;
            for secret in claim.secrets {
                let mut others = NotClaimed { ends_left: &mut ends_left, aside: &mut aside, expired: &mut expired };
                match claim_first(conn, claim, secret, auditor.as_ref(), &mut others)? {
                    Some(run) => claimed.push(run),
                    None => break,
                }
            }
            was_written = true;
            fault_point!("outside_claim.before_commit");
            let is_over = ends_left > 0 && expired.is_empty() || !claimed.is_empty();
            Ok(if is_over { ControlFlow::Break(claimed) } else { ControlFlow::Continue(()) })
        })?;
        self.set_aside(aside);
        match (self.end_expired(&expired), claimed) {
            // An error here must not lose the claimed runs: `create-runs` ends the tasks too.
            (Err(error), ControlFlow::Continue(())) => Err(error),
            (_, claimed) => Ok(claimed),
        }
    }

    /// Returns the runs that a claim with these secrets has taken and that have not ended, each with its token. Queried under the
    /// lock of the claim, which waits for a claim whose COMMIT is still in progress.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn find_claimed_outside(&mut self, claimant: &str, secrets: &[String]) -> StoreResult<Vec<RunRef>> {
        let held = self.claim_write(false, |conn| Ok(held_by(conn, claimant, secrets)?))?;
        Ok(held.into_iter().map(|(run_id, token)| RunRef { id: RunId(run_id), token }).collect())
    }

    /// Returns true if there is anything to claim, without the lock.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn has_claimable_outside(&mut self, claim: &OutsideClaim<'_>) -> StoreResult<bool> {
        self.read(|conn| {
            let mut obstacles = Obstacles::load(conn, NO_RUNNER)?;
            Ok(first_offered(conn, claim, &mut obstacles)?.is_some())
        })
    }
}

/// The runs that a claim finds and cannot take.
struct NotClaimed<'a> {
    /// How many runs may still end in this transaction.
    ends_left: &'a mut usize,
    aside: &'a mut UnreadableRuns,
    expired: &'a mut Vec<TaskId>,
}

fn claim_first(
    conn: &mut AnyConnection,
    claim: &OutsideClaim<'_>,
    secret: &str,
    auditor: Option<&Origin>,
    others: &mut NotClaimed<'_>,
) -> StoreResult<Option<OutsideRun>> {
    while *others.ends_left > 0 {
        // Loaded for each run: each claim increases the number of runs of its class.
        let mut obstacles = Obstacles::load(conn, NO_RUNNER)?;
        let Some((class, run_id, ..)) = first_offered(conn, claim, &mut obstacles)? else { return Ok(None) };
        let timeout_secs: Option<Option<i32>> = task_queue_runs::table
            .inner_join(task_queue::table.on(task_queue::id.eq(task_queue_runs::task_queue_id)))
            .filter(task_queue_runs::id.eq(run_id))
            .select(task_queue::timeout_secs)
            .first(conn)
            .optional()?;
        let holder = RunHolder {
            runner_id: None,
            runner_name: NO_RUNNER,
            claimant: Some(claim.claimant),
            process_id: claim.process.as_ref().map(|(pid, _)| *pid),
            host: claim.host,
            process_identity: claim.process.as_ref().map_or("", |(_, identity)| identity),
            lease_secs: (claim.lease_secs)(class.known(), timeout_secs.flatten()),
        };
        let start = Start { run_id, token: &token_of(run_id, secret) };
        let started = start_waiting(conn, &holder, &[start], auditor)?;
        obstacles.count_starts(conn, &started.runs)?;
        others.aside.extend(started.aside);
        if let Some(run) = started.runs.into_iter().next() {
            insert_event(conn, &(claim.event)(&run))?;
            return with_deadline(conn, run).map(Some);
        }
        // It stays the first one until it has ended.
        if !started.expired.is_empty() {
            others.expired.extend(started.expired);
            return Ok(None);
        }
        *others.ends_left -= 1;
    }
    Ok(None)
}

/// Returns the first run that is offered, unless a pause or a limit of its class blocks it.
fn first_offered(
    conn: &mut AnyConnection,
    claim: &OutsideClaim<'_>,
    obstacles: &mut Obstacles<'_>,
) -> StoreResult<Option<Head>> {
    if obstacles.is_closed() {
        return Ok(None);
    }
    if claim.choice.is_of_few() {
        return first_chosen(conn, claim, obstacles);
    }
    let asker = HeadFilter { claimant: claim.claimant, tag: claim.choice.tag.as_deref() };
    first_claimable(conn, &claim.classes, Some(asker), obstacles)
}

/// Begins with the run's id, so that the run of a token is found without a separate index.
fn token_of(run_id: i64, secret: &str) -> String {
    format!("{run_id}-{secret}")
}

/// Returns what this call has already claimed, by its secrets.
fn claimed_before(conn: &mut AnyConnection, claim: &OutsideClaim<'_>) -> StoreResult<Vec<OutsideRun>> {
    let mut held = StartedRun::default();
    for (run_id, token) in held_by(conn, claim.claimant, claim.secrets)? {
        // A run that cannot be read is rescued after its deadline.
        load_held(conn, run_id, token, &mut held)?;
    }
    held.runs.into_iter().map(|run| with_deadline(conn, run)).collect()
}

/// Returns each run that a claimant has with one of these secrets, with its token, in the order of the secrets.
fn held_by(conn: &mut AnyConnection, claimant: &str, secrets: &[String]) -> QueryResult<Vec<(i64, String)>> {
    use task_queue_runs::dsl;
    let held: Vec<(i64, Option<ShownText>)> = dsl::task_queue_runs
        .filter(dsl::running_class.is_not_null())
        .filter(dsl::claimant.eq(claimant))
        .order((dsl::running_class, dsl::id))
        .select((dsl::id, dsl::token))
        .load(conn)?;
    let with = |secret: &String| {
        let (run_id, token) = held
            .iter()
            .find(|(run_id, token)| token.as_ref().is_some_and(|token| token.0 == token_of(*run_id, secret)))?;
        Some((*run_id, token.clone()?.0))
    };
    Ok(secrets.iter().filter_map(with).collect())
}

fn with_deadline(conn: &mut AnyConnection, run: ClaimedRun) -> StoreResult<OutsideRun> {
    let deadline = lease_end(conn, run.run_id.0)?.unwrap_or(run.started_on);
    Ok(OutsideRun { run, deadline })
}
