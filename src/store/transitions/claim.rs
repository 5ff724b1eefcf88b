//! A run passes from waiting to processing: one at a time, under the lock of the claim.

use std::ops::ControlFlow;

use diesel::prelude::*;
use diesel::result::QueryResult;

use super::super::audit::{Origin, keep_run_transition};
use super::super::backend::AnyConnection;
use super::super::cells::{Cell, ExactInt, ExactText, ShownText};
use super::super::content::{Content, ContentRow};
use super::super::key_slots::{fit_key, take_key_slot};
use super::super::limits::Obstacles;
use super::super::runs::RunRef;
use super::super::schema::{task_queue, task_queue_runs};
use super::super::sql::{Moment, db_now, db_now_plus};
use super::super::{Store, StoreError, StoreResult};
use super::end::end_waiting_run;
use super::heads::first_claimable;
use super::run_end::RunEnd;
use super::set_aside::Aside;
use crate::domain::class_set::ClassSet;
use crate::domain::ids::{RunId, RunnerId, TaskId};
use crate::domain::limits::{KeyLimit, Obstacle};
use crate::domain::records::ClaimedRun;
use crate::domain::status::{RunStatus, Stored, TaskStatus};
use crate::domain::transition::{RunEvent, TaskEvent, run_after, task_after};
use crate::domain::unreadable::Unreadable;

/// Runs that a claim meets and that must end instead of being executed, under one lock: for some milliseconds nobody else
/// can claim.
pub(super) const ENDS_PER_TRANSACTION: usize = 100;

/// Who claims, what it may claim, and for how long.
pub struct Claim<'a> {
    /// The claiming runner's row.
    pub runner_id: RunnerId,
    /// Its name, by which it may be paused.
    pub runner_name: &'a str,
    /// Its PID.
    pub process_id: i64,
    /// Its host.
    pub host: &'a str,
    /// Who it is, beyond its PID.
    pub process_identity: &'a str,
    /// The classes that can be executed here.
    pub classes: ClassSet<'a>,
    /// Seconds until anybody may take the run, unless the lease is renewed.
    pub lease_secs: i64,
}

/// The answer to a claim of one specific run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecificClaim {
    /// It is ours.
    Claimed(Box<ClaimedRun>),
    /// It cannot be claimed: it is in this status, or of a class that cannot be executed here.
    Refused {
        /// The status that it has.
        status: String,
        /// Its class.
        class: String,
    },
    /// It waits, but may not be claimed now.
    Obstructed {
        /// Why.
        obstacle: Obstacle,
    },
}

/// Whoever takes a run, as its row names them.
pub(super) struct Holder<'a> {
    pub(super) runner_id: Option<i64>,
    pub(super) runner_name: &'a str,
    pub(super) claimant: Option<&'a str>,
    pub(super) process_id: Option<i64>,
    pub(super) host: &'a str,
    pub(super) process_identity: &'a str,
    pub(super) token: &'a str,
    pub(super) lease_secs: i64,
}

impl<'a> Claim<'a> {
    /// Whoever claims with this token, the fence of the claimed run: new and random for each.
    pub(super) fn holder<'b>(&'b self, token: &'b str) -> Holder<'b> {
        Holder {
            runner_id: Some(self.runner_id.0),
            runner_name: self.runner_name,
            claimant: None,
            process_id: Some(self.process_id),
            host: self.host,
            process_identity: self.process_identity,
            token,
            lease_secs: self.lease_secs,
        }
    }
}

impl Store {
    /// Claims the first run that can be executed here (rule R6): by priority, then id. `None` when there is none.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn claim_next_run(&mut self, claim: &Claim<'_>, token: &str) -> StoreResult<Option<ClaimedRun>> {
        loop {
            if let ControlFlow::Break(claimed) = self.claim_or_end_some(claim, token)? {
                return Ok(claimed);
            }
        }
    }

    /// `Continue` after so many runs that had to be ended that others shall claim in between.
    fn claim_or_end_some(&mut self, claim: &Claim<'_>, token: &str) -> StoreResult<ControlFlow<Option<ClaimedRun>>> {
        let (auditor, mut aside) = (self.auditor()?, Aside::default());
        let claimed = self.claim_write(auditor.is_some(), |conn| {
            aside.clear();
            fault_point!("claim.locked");
            if let Some(run) = already_claimed(conn, token, &mut aside)? {
                return Ok(ControlFlow::Break(Some(run)));
            }
            if !aside.is_empty() {
                return Ok(ControlFlow::Continue(()));
            }
            let mut obstacles = Obstacles::load(conn, claim.runner_name)?;
            if obstacles.is_closed() {
                return Ok(ControlFlow::Break(None));
            }
            for _ in 0..ENDS_PER_TRANSACTION {
                let head = first_claimable(conn, &claim.classes, None, &mut obstacles)?;
                let Some((_, run_id, _)) = head else { return Ok(ControlFlow::Break(None)) };
                if let Some(run) = claim_run(conn, &claim.holder(token), run_id, auditor.as_ref(), &mut aside)? {
                    obstacles.count_starts(conn, std::slice::from_ref(&run))?;
                    fault_point!("claim.before_commit");
                    return Ok(ControlFlow::Break(Some(run)));
                }
                // It has this token: another run gets it once this one has ended.
                if !aside.is_empty() {
                    break;
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        self.set_aside(aside);
        Ok(claimed)
    }

    /// The run that the claim with this token has taken and that has not ended. Asked under the lock of the claim: one whose
    /// COMMIT is still under way is waited for.
    ///
    /// # Errors
    /// The database could not be asked.
    pub fn find_claimed(&mut self, token: &str) -> StoreResult<Option<(RunId, TaskId)>> {
        let found = self.claim_write(false, |conn| Ok(claimed_with(conn, token)?))?;
        Ok(found.map(|(run_id, task_id)| (RunId(run_id), TaskId(task_id))))
    }

    /// Claims this run, whatever stands before it. Pauses and limits are kept.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]
    pub fn claim_specific_run(&mut self, run_id: RunId, claim: &Claim<'_>, token: &str) -> StoreResult<SpecificClaim> {
        use task_queue_runs::dsl;
        let (auditor, mut aside) = (self.auditor()?, Aside::default());
        let claimed = self.claim_write(auditor.is_some(), |conn| {
            aside.clear();
            if let Some(run) = already_claimed(conn, token, &mut aside)? {
                return Ok(SpecificClaim::Claimed(Box::new(run)));
            }
            let row: Option<(String, ShownText, Option<String>)> = dsl::task_queue_runs
                .filter(dsl::id.eq(run_id.0))
                .select((dsl::status, dsl::task_class, dsl::waiting_key))
                .first(conn)
                .optional()?;
            let Some((status, class, waiting_key)) = row else {
                return Err(StoreError::NotFound(format!("run {run_id}")));
            };
            let class = Stored::from(class.0);
            let is_runnable = class.known().is_none_or(|class| claim.classes.contains(class));
            if status != RunStatus::Scheduled.as_str() || !is_runnable {
                return Ok(SpecificClaim::Refused { status, class: class.to_string() });
            }
            let mut obstacles = Obstacles::load(conn, claim.runner_name)?;
            if let Some(obstacle) = obstacles.of_class(conn, class.as_str())? {
                return Ok(SpecificClaim::Obstructed { obstacle });
            }
            if let Some(key) = waiting_key
                && let Err(max_running) = take_key_slot(conn, run_id.0, &key)?
            {
                return Ok(SpecificClaim::Obstructed { obstacle: Obstacle::KeyIsFull(KeyLimit { key, max_running }) });
            }
            if let Some(run) = claim_run(conn, &claim.holder(token), run_id.0, auditor.as_ref(), &mut aside)? {
                obstacles.count_starts(conn, std::slice::from_ref(&run))?;
                return Ok(SpecificClaim::Claimed(Box::new(run)));
            }
            // It has just ended instead.
            let status = dsl::task_queue_runs.filter(dsl::id.eq(run_id.0)).select(dsl::status).first(conn)?;
            Ok(SpecificClaim::Refused { status, class: class.to_string() })
        })?;
        self.set_aside(aside);
        Ok(claimed)
    }
}

/// The run that this very token has claimed: the closure runs again after a COMMIT whose answer was lost.
fn already_claimed(conn: &mut AnyConnection, token: &str, aside: &mut Aside) -> StoreResult<Option<ClaimedRun>> {
    let Some((run_id, _)) = claimed_with(conn, token)? else { return Ok(None) };
    let claimed = load_claimed(conn, run_id, token)?;
    Ok(claimed.map_err(|problem| aside.add(RunRef { id: RunId(run_id), token: token.to_owned() }, problem)).ok())
}

/// Ids of the run and of its task.
pub(super) fn claimed_with(conn: &mut AnyConnection, token: &str) -> QueryResult<Option<(i64, i64)>> {
    use task_queue_runs::dsl;
    dsl::task_queue_runs
        .filter(dsl::running_class.is_not_null())
        .filter(dsl::token.eq(token))
        .select((dsl::id, dsl::task_queue_id))
        .first(conn)
        .optional()
}

/// Claims one run under the lock. `None` if it has ended instead: as an error if it belongs to no task, as cancelled if its task
/// was cancelled in the tables. One whose row cannot be read is to be set aside.
pub(super) fn claim_run(
    conn: &mut AnyConnection,
    holder: &Holder<'_>,
    run_id: i64,
    auditor: Option<&Origin>,
    aside: &mut Aside,
) -> StoreResult<Option<ClaimedRun>> {
    use task_queue_runs::dsl;
    let task: Option<(i64, String, Option<String>)> = task_queue_runs::table
        .inner_join(task_queue::table.on(task_queue::id.eq(dsl::task_queue_id)))
        .filter(dsl::id.eq(run_id))
        .select((task_queue::id, task_queue::last_status, dsl::limit_key))
        .first(conn)
        .optional()?;
    let Some((task_id, task_status, limit_key)) = task else {
        return end_orphan(conn, run_id).map(|()| None);
    };
    if task_status == TaskStatus::Cancelled.as_str() {
        let end =
            RunEnd::of(RunEvent::Cancel, "cancelled", "the task was cancelled", "cancelled before it was claimed");
        end_waiting_run(conn, RunId(run_id), &end, auditor)?;
        if let Some(key) = limit_key {
            fit_key(conn, &key)?;
        }
        return Ok(None);
    }
    diesel::update(dsl::task_queue_runs)
        .filter(dsl::id.eq(run_id))
        .filter(dsl::status.eq(RunStatus::Scheduled.as_str()))
        .set((
            dsl::status.eq(RunStatus::Processing.as_str()),
            dsl::started_on.eq(db_now().nullable()),
            dsl::process_id.eq(holder.process_id),
            dsl::runner_id.eq(holder.runner_id),
            dsl::claimant.eq(holder.claimant),
            dsl::token.eq(holder.token),
            dsl::host.eq(holder.host),
            dsl::process_identity.eq(holder.process_identity),
            dsl::lease_expires_on.eq(db_now_plus(holder.lease_secs).nullable()),
            dsl::updated_on.eq(db_now()),
        ))
        .execute(conn)?;
    fault_point!("claim.run_written");
    // A status that does not allow a start was written by a hand in the tables or a newer version: the run goes ahead,
    // the task's status is left alone (rule R9).
    let may_start = TaskStatus::parse(&task_status).and_then(|from| task_after(from, TaskEvent::Start, from));
    diesel::update(task_queue::table.filter(task_queue::id.eq(task_id)))
        .set((
            may_start.map(|status| task_queue::last_status.eq(status.as_str())),
            task_queue::current_run_id.eq(run_id),
            task_queue::updated_on.eq(db_now()),
        ))
        .execute(conn)?;
    let claimed = match load_claimed(conn, run_id, holder.token)? {
        Ok(claimed) => claimed,
        Err(problem) => {
            let run = RunRef { id: RunId(run_id), token: holder.token.to_owned() };
            aside.add(run, problem);
            return Ok(None);
        }
    };
    if let Some(origin) = auditor {
        let details = serde_json::json!({ "attempt": claimed.attempt, "runner": holder.runner_name, "claimant": holder.claimant });
        keep_run_transition(conn, origin, "run-started", (claimed.task_id, claimed.run_id), details)?;
    }
    Ok(Some(claimed))
}

/// What the handler of a claimed run needs, or which column of it cannot be read.
pub(super) fn load_claimed(
    conn: &mut AnyConnection,
    run_id: i64,
    token: &str,
) -> StoreResult<Result<ClaimedRun, Unreadable>> {
    type Run = (i64, i32, Option<Moment>, Cell<ExactText>);
    type Number = Option<Cell<ExactInt>>;
    type Task = (Cell<ExactText>, Number, Number, Cell<Moment>, Option<Cell<Moment>>);
    let ((task_id, attempt, started_on, class), task): (Run, Task) = task_queue_runs::table
        .inner_join(task_queue::table.on(task_queue::id.eq(task_queue_runs::task_queue_id)))
        .filter(task_queue_runs::id.eq(run_id))
        .select((
            (task_queue::id, task_queue_runs::attempt, task_queue_runs::started_on, task_queue_runs::task_class),
            (
                task_queue::task_data,
                task_queue::max_retries,
                task_queue::timeout_secs,
                task_queue::scheduled_on,
                task_queue::planned_on,
            ),
        ))
        .first(conn)?;
    let (data, max_retries, timeout_secs, scheduled_on, planned_on) = task;
    let row = ContentRow { class, data, max_retries, timeout_secs, planned_on, scheduled_on };
    Ok(row.read().map(|content| {
        let started_on = started_on.unwrap_or(content.planned_on);
        let ids = (RunId(run_id), TaskId(task_id));
        claimed_run(ids, token.to_owned(), attempt, started_on, content)
    }))
}

/// A run that is ours, with what its handler needs.
pub(super) fn claimed_run(
    (run_id, task_id): (RunId, TaskId),
    token: String,
    attempt: i32,
    started_on: Moment,
    content: Content,
) -> ClaimedRun {
    ClaimedRun {
        run_id,
        task_id,
        class: content.class,
        data: content.data,
        token,
        attempt,
        max_retries: content.max_retries,
        task_timeout_secs: content.timeout_secs,
        planned_on: content.planned_on.into(),
        started_on: started_on.into(),
    }
}

/// A run whose task is gone can never be executed and would stand at the head of its class for ever.
fn end_orphan(conn: &mut AnyConnection, run_id: i64) -> StoreResult<()> {
    use task_queue_runs::dsl;
    let Some(status) = run_after(RunStatus::Scheduled, RunEvent::Fail) else { return Ok(()) };
    let key: Option<Option<String>> =
        dsl::task_queue_runs.filter(dsl::id.eq(run_id)).select(dsl::limit_key).first(conn).optional()?;
    diesel::update(dsl::task_queue_runs)
        .filter(dsl::id.eq(run_id))
        .filter(dsl::status.eq(RunStatus::Scheduled.as_str()))
        .set((
            dsl::status.eq(status.as_str()),
            dsl::finished_on.eq(db_now().nullable()),
            dsl::error_code.eq("no-task"),
            dsl::error_message.eq("the task of this run does not exist"),
            dsl::updated_on.eq(db_now()),
        ))
        .execute(conn)?;
    if let Some(key) = key.flatten() {
        fit_key(conn, &key)?;
    }
    Ok(())
}
