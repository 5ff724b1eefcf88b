//! How the coordinator claims runs: as many as there is room for, in a separate transaction or together with outcomes.

use std::time::Duration;

use super::backlog::BacklogCounts;
use super::coordinator::Coordinator;
use super::listener::WorkListener;
use crate::context::{Context, new_tokens};
use crate::error::EngineResult;
use crate::outbox::outcomes_of_many::leave_claims;
use crate::upkeep::create_runs::move_schedules_on;
use taskqueue_domain::run::decision::Decision;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_host::clock::Moment;
use taskqueue_store::{Claim, ManyClaimed, NextWork, Store, StoreResult};

/// The longest pause while this worker cannot claim because so many others do.
const CROWDED_PAUSE: Duration = Duration::from_millis(250);
/// How long a due task waits for its run while runs of limit keys take all claims.
const CREATE_EVERY: Duration = Duration::from_millis(200);

/// The parameters of a claim.
pub(super) struct WorkerClaim {
    /// One token for each run that there is room for.
    pub(super) tokens: Vec<String>,
    /// When the leases start.
    asked_at: Moment,
}

impl Coordinator<'_> {
    /// Claims as many runs as there is room for.
    pub(super) fn claim(&mut self, counts: BacklogCounts, listener: &mut dyn WorkListener) -> EngineResult<()> {
        // A read without the lock comes first.
        if self.last_poll_was_empty && !self.sees_work()? {
            (self.next_poll_at, self.was_crowded) = (self.next_look(), false);
            return Ok(());
        }
        let request = self.request(counts)?;
        match self.claim_with(|ctx, claim| ctx.store.claim_runs(claim, &request.tokens)) {
            Ok(claimed) => self.take(&request, claimed, listener),
            Err(error) => {
                self.leave(&request);
                Err(error.into())
            }
        }
    }

    /// Returns whether there may be something to claim. If not, sets `next_due` to when there will be, if that is known.
    fn sees_work(&mut self) -> EngineResult<bool> {
        self.holds.refresh(self.ctx)?;
        let next_work = self.claim_with(|ctx, claim| ctx.store.poll_for_work(claim.runner_name, &claim.classes))?;
        if let NextWork::In(wait) = next_work {
            self.next_due = Some(Moment::after(wait));
        }
        Ok(matches!(next_work, NextWork::Now))
    }

    /// Prepares a claim of as many runs as there is room for.
    pub(super) fn request(&mut self, counts: BacklogCounts) -> EngineResult<WorkerClaim> {
        self.holds.refresh(self.ctx)?;
        let asked_at = Moment::now();
        let tokens = new_tokens(self.room(counts))?;
        Ok(WorkerClaim { tokens, asked_at })
    }

    /// Calls `act` with a claim by this worker.
    pub(super) fn claim_with<T>(&mut self, act: impl FnOnce(&mut Context, &Claim<'_>) -> T) -> T {
        let (place, policy, holds, patterns) = (self.place, &self.current.policy, &self.holds, &self.patterns);
        let may_begin = |class: &TaskClass| {
            (patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(class)))
                && holds.allow(&policy.handlers, class)
        };
        let classes = policy.handlers.class_set(&may_begin).within(&self.options.classes);
        let claim = place.claim(policy, classes);
        act(self.ctx, &claim)
    }

    /// Writes an unanswered claim to the spool: its COMMIT may have succeeded.
    pub(super) fn leave(&mut self, request: &WorkerClaim) {
        self.ctx.spool_problem = leave_claims(self.ctx, &request.tokens).or_else(|| self.ctx.spool_problem.take());
    }

    /// Passes claimed runs to the slots.
    pub(super) fn take(
        &mut self,
        request: &WorkerClaim,
        claimed: ManyClaimed,
        listener: &mut dyn WorkListener,
    ) -> EngineResult<()> {
        let ManyClaimed { runs, needs_runs, has_skipped_due, late, is_crowded, .. } = claimed;
        self.was_crowded = is_crowded;
        if is_crowded {
            self.next_poll_at = Moment::after(self.pause.next().min(CROWDED_PAUSE));
            self.idle_since = Moment::now();
            return Ok(());
        }
        self.last_poll_was_empty = runs.is_empty() && !needs_runs && late.is_empty();
        if runs.is_empty() {
            if !late.is_empty() {
                self.next_poll_at = Moment::now();
                return self.settle(&late);
            }
            if needs_runs && self.create_runs(|store| store.create_missing_runs(&mut |_| {}))? > 0 {
                self.next_poll_at = Moment::now();
                return Ok(());
            }
            self.next_poll_at = self.next_look();
            return Ok(());
        }
        fault_point!("work.claim_committed");
        self.place.hold(&self.current.policy, request.asked_at, &runs);
        fault_point!("work.leases_held");
        self.next_poll_at = Moment::now();
        self.pause.reset();
        if runs.len() < request.tokens.len() && !needs_runs && late.is_empty() {
            // That was everything: the next poll may wait, unless a success makes more tasks due.
            self.next_poll_at = self.next_look();
        }
        self.claimed += u64::try_from(runs.len()).unwrap_or(u64::MAX);
        self.idle_since = Moment::now();
        self.options.tally.claimed(runs.iter().map(|run| (run.class.as_str(), run.waited())));
        runs.iter().for_each(|run| listener.claimed(run));
        let (suspects, runs): (Vec<_>, Vec<_>) = runs.into_iter().partition(|run| self.is_suspect(run));
        if !suspects.is_empty() {
            self.backlog.add_suspects(suspects);
        }
        self.backlog.add(runs);
        fault_point!("work.claimed");
        self.settle(&late)?;
        if (needs_runs || has_skipped_due) && self.create_at.has_passed() {
            self.create_runs(Store::create_missing_runs_beside_keys)?;
            // From its end on: with many keys it takes long itself.
            self.create_at = Moment::after(CREATE_EVERY);
        }
        Ok(())
    }

    /// Creates runs after schedules have skipped what they do not catch up. Returns 0 if there are no new ones.
    fn create_runs(&mut self, create: fn(&mut Store) -> StoreResult<usize>) -> EngineResult<usize> {
        let has_moved = move_schedules_on(self.ctx)?;
        Ok(create(&mut self.ctx.store)? + usize::from(has_moved))
    }

    /// Moves schedules on, and creates the runs of those of these late tasks that stay due: only theirs, however many others wait.
    fn settle(&mut self, late: &[TaskId]) -> EngineResult<()> {
        if !late.is_empty() {
            let _ = move_schedules_on(self.ctx)?;
        }
        for task in late {
            let _ = self.ctx.store.open_run_of(*task)?;
        }
        Ok(())
    }

    /// Returns true if the last attempt was lost together with others, so that any of them may have killed the runner.
    fn is_suspect(&mut self, run: &ClaimedRun) -> bool {
        if run.attempt <= 1 {
            return false;
        }
        let decision = self.ctx.store.decision_before(run.task_id, run.run_id);
        decision.is_ok_and(|rule| rule.is_some_and(|rule| Decision::is_of_one_lost_with_others(&rule)))
    }

    /// Returns when to poll next: after a pause, or when the next task is due.
    fn next_look(&mut self) -> Moment {
        let next_poll_at = Moment::after(self.pause.next());
        self.next_due.take().map_or(next_poll_at, |next_due| next_poll_at.min(next_due))
    }
}
