//! The parameters of a claim, and the claim of one run: the next one, or a specific one.

use diesel::prelude::*;

use crate::backend::batch::{RunHolder, Start};
use crate::base::cells::ShownText;
use crate::base::schema::task_queue_runs;
use crate::rules::key_slots::take_key_slot;
use crate::rules::limits::Obstacles;
use crate::transitions::claiming::start::{already_claimed, held_with, start_waiting};
use crate::transitions::ending::set_aside::UnreadableRuns;
use crate::{Store, StoreError, StoreResult};
use taskqueue_domain::limits::limit::{KeyLimit, Obstacle};
use taskqueue_domain::run::status::{RunStatus, Stored};
use taskqueue_domain::task::choosing::class_set::ClassSet;
use taskqueue_domain::task::ids::{RunId, RunnerId, TaskId};
use taskqueue_domain::task::records::ClaimedRun;

/// Who claims, which runs may be claimed, and for how long.
pub struct Claim<'a> {
    /// The claiming runner's row.
    pub runner_id: RunnerId,
    /// Its name, to which pauses refer.
    pub runner_name: &'a str,
    /// Its PID.
    pub process_id: i64,
    /// Its host.
    pub host: &'a str,
    /// The identity of its process.
    pub process_identity: &'a str,
    /// The classes that can be executed here.
    pub classes: ClassSet<'a>,
    /// Seconds until any runner may take the run, unless the lease is renewed.
    pub lease_secs: i64,
}

/// What a claim takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimSource {
    /// Waiting runs.
    Runs,
    /// Waiting runs and, if those are too few, due tasks without a run.
    RunsAndDueTasks,
}

/// The answer to a claim of one specific run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecificClaim {
    /// It was claimed.
    Claimed(Box<ClaimedRun>),
    /// It cannot be claimed: it has this status, or this host cannot execute its class.
    Refused {
        /// Its status.
        status: String,
        /// Its class.
        class: String,
    },
    /// It is waiting, but may not be claimed now.
    Obstructed {
        /// The reason.
        obstacle: Obstacle,
    },
}

impl<'a> Claim<'a> {
    /// Returns the holder as stored in the rows of the runs.
    pub(crate) fn holder(&self) -> RunHolder<'a> {
        RunHolder {
            runner_id: Some(self.runner_id.0),
            runner_name: self.runner_name,
            claimant: None,
            process_id: Some(self.process_id),
            host: self.host,
            process_identity: self.process_identity,
            lease_secs: self.lease_secs,
        }
    }
}

impl Store {
    /// Claims the first waiting run that can be executed here (rule R6), by priority, then by place in the line. Returns `None` if
    /// there is none. The token is new and random: the fencing token of the run.
    ///
    /// # Errors
    /// The database could not be written.
    pub fn claim_next_run(&mut self, claim: &Claim<'_>, token: &str) -> StoreResult<Option<ClaimedRun>> {
        let tokens = [token.to_owned()];
        loop {
            let mut claimed = self.claim_alone(claim, &tokens, false, ClaimSource::Runs)?;
            // A run that was set aside has this token: another run gets it after that one has ended.
            let is_over = claimed.aside.is_empty() && claimed.expired.is_empty() && !claimed.has_ended_some;
            self.set_aside(std::mem::take(&mut claimed.aside));
            self.end_expired_of_claim(&mut claimed)?;
            if is_over || !claimed.runs.is_empty() {
                return Ok(claimed.runs.pop());
            }
        }
    }

    /// Returns the run that the claim with this token has taken, if it has not ended. Queried under the lock of the claim, which
    /// waits for a claim whose COMMIT is still in progress.
    ///
    /// # Errors
    /// The database could not be queried.
    pub fn find_claimed(&mut self, token: &str) -> StoreResult<Option<(RunId, TaskId)>> {
        let tokens = [token.to_owned()];
        let held = self.claim_write(false, |conn| Ok(held_with(conn, &tokens)?))?;
        Ok(held.first().map(|held| (RunId(held.run_id), TaskId(held.task_id))))
    }

    /// Claims this run, even if others are ahead of it. Pauses and limits apply.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]
    pub fn claim_specific_run(&mut self, run_id: RunId, claim: &Claim<'_>, token: &str) -> StoreResult<SpecificClaim> {
        use task_queue_runs::dsl;
        let (auditor, mut aside, mut expired) = (self.auditor()?, UnreadableRuns::default(), Vec::new());
        let claimed = self.claim_write(auditor.is_some(), |conn| {
            let earlier = already_claimed(conn, &[token.to_owned()])?;
            aside = earlier.aside;
            if let Some(run) = earlier.runs.into_iter().next() {
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
            let start = Start { run_id: run_id.0, token };
            let started = start_waiting(conn, &claim.holder(), &[start], auditor.as_ref())?;
            obstacles.count_starts(conn, &started.runs)?;
            (aside, expired) = (started.aside, started.expired);
            if let Some(run) = started.runs.into_iter().next() {
                return Ok(SpecificClaim::Claimed(Box::new(run)));
            }
            // It has just ended instead, or ends below because its task has expired.
            let status = match expired.is_empty() {
                true => dsl::task_queue_runs.filter(dsl::id.eq(run_id.0)).select(dsl::status).first(conn)?,
                false => RunStatus::Cancelled.as_str().to_owned(),
            };
            Ok(SpecificClaim::Refused { status, class: class.to_string() })
        })?;
        self.set_aside(aside);
        self.end_expired(&expired)?;
        Ok(claimed)
    }
}
