//! How the coordinator writes outcomes, and releases runs that no slot has started.

use super::backlog::{BacklogCounts, FinishedRun};
use super::claiming::WorkerClaim;
use super::coordinator::Coordinator;
use super::listener::WorkListener;
use crate::error::{EngineError, EngineResult};
use crate::inspect::monitoring::counted::{CountedRun, outcome_of_sent};
use crate::outbox::outcomes::{GivenBack, Outcome};
use crate::outbox::outcomes_of_many::{Sent, send_many, send_many_and_claim};
use crate::running::process_run::ProcessReport;
use taskqueue_domain::run::message::Messages;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_host::clock::Moment;
use taskqueue_store::{ManyClaimed, RunRef};

/// The answer to each outcome; `None` for a run without an end yet.
type Answers = Vec<Option<Sent>>;

impl Coordinator<'_> {
    /// Writes the outcomes and claims new runs, all in a few transactions.
    pub(super) fn record(
        &mut self,
        counts: BacklogCounts,
        listener: &mut dyn WorkListener,
        report: &mut ProcessReport,
    ) -> EngineResult<()> {
        // After a failed attempt the database was unreachable: write first, claim later.
        let is_first = self.unsent.is_none();
        let (mut finished, file) = self.unsent.take().unwrap_or_else(|| self.backlog.take_finished());
        self.gathering_since = None;
        let began = Moment::now();
        let (answers, claimed) = match self.send(&mut finished, counts, is_first) {
            Ok(sent) => sent,
            Err(error) => {
                self.unsent = Some((finished, file));
                return Err(error);
            }
        };
        fault_point!("work.outcomes_sent");
        let took = began.elapsed();
        self.backlog.wrote(took);
        self.options.tally.committed(took);
        self.options
            .tally
            .ended(finished.iter().zip(&answers).map(|(finished, answer)| finished.counted(answer.as_ref())));
        // Other tasks may wait for a success.
        (self.next_poll_at, self.idle_since) = (Moment::now(), Moment::now());
        self.pause.reset();
        let taken = claimed.map_or(Ok(()), |(request, claimed)| self.take(&request, claimed, listener));
        self.housekeeping.notify_finished();
        if let Some(mut file) = file {
            // If it stays, it is sent again, which changes nothing.
            let _ = file.clear();
            fault_point!("work.outcomes_cleared");
            self.backlog.give_back(file);
        }
        self.ctx.spool_problem = self.backlog.problem().or_else(|| self.ctx.spool_problem.take());
        for (finished, answer) in finished.into_iter().zip(answers) {
            self.note(finished, answer, listener, report);
        }
        fault_point!("work.runs_ended");
        taken
    }

    /// Returns the request for a claim in the same transaction; `None` if the outcomes decide what may be claimed.
    fn request_beside(&mut self, finished: &[FinishedRun], counts: BacklogCounts) -> EngineResult<Option<WorkerClaim>> {
        let decides = finished.iter().any(|finished| finished.is_over || finished.outcome.decision.holds_class);
        let is_wanted = !decides && !self.is_to_give_back(counts) && self.room(counts) > 0;
        is_wanted.then(|| self.request(counts)).transpose()
    }

    fn send(
        &mut self,
        finished: &mut [FinishedRun],
        counts: BacklogCounts,
        is_first: bool,
    ) -> EngineResult<(Answers, Option<(WorkerClaim, ManyClaimed)>)> {
        if let Some(over) = finished.iter().find(|finished| finished.is_over) {
            // All outcomes stay in the spool, because another process may have the run by now.
            let (run_id, task_id) = (over.run.run_id.0, over.run.task_id.0);
            return Err(EngineError::LeaseOver { run_id, task_id, found: None });
        }
        self.record_messages(finished);
        let request = if is_first { self.request_beside(finished, counts)? } else { None };
        let outcomes: Vec<&Outcome> = finished.iter().filter_map(|finished| finished.to_send.as_ref()).collect();
        let housekeeping = self.housekeeping;
        let tell = &mut |outcome: &Outcome| housekeeping.tell(outcome);
        let (answers, claimed) = match request {
            None => (send_many(self.ctx, &outcomes, tell)?, None),
            Some(request) => {
                let sent =
                    self.claim_with(|ctx, claim| send_many_and_claim(ctx, &outcomes, tell, claim, &request.tokens));
                if !matches!(sent, Ok((_, Some(_)))) {
                    self.leave(&request);
                }
                sent.map(|(answers, claimed)| (answers, claimed.map(|claimed| (request, claimed))))?
            }
        };
        let mut answers = answers.into_iter();
        let answers = finished.iter().map(|finished| finished.to_send.as_ref().and_then(|_| answers.next()));
        Ok((answers.collect(), claimed))
    }

    /// Handles a run that has ended.
    fn note(
        &mut self,
        finished: FinishedRun,
        answer: Option<Sent>,
        listener: &mut dyn WorkListener,
        report: &mut ProcessReport,
    ) {
        let FinishedRun { run, mut outcome, .. } = finished;
        self.place.leases.let_go(run.run_id);
        match answer {
            Some(Sent::Answered(ended)) => outcome.answered(ended),
            Some(Sent::Refused(problem)) => listener.not_recorded(&run, &problem),
            None => {}
        }
        if outcome.decision.holds_class {
            self.holds.forget();
        }
        if outcome.decision.lacks_room {
            self.note_shortage(&outcome.decision.error_message, listener);
        }
        report.count(&outcome);
        listener.ended(&run, &outcome);
        if outcome.is_left_behind {
            let overrun = self.current.policy.handlers.overrun();
            listener.left_behind(&run, overrun.left_behind.count(), overrun.most(self.options.slots));
        }
    }

    /// Stores the messages that are left. Those that are refused are dropped with the run: they must not delay its end.
    fn record_messages(&mut self, finished: &mut [FinishedRun]) {
        for FinishedRun { run, messages, .. } in finished.iter_mut().filter(|finished| !finished.messages.is_empty()) {
            let reference = RunRef { id: run.run_id, token: run.token.clone() };
            if self.ctx.store.record_messages(&reference, messages).is_ok() {
                // The ends may have to be sent once more.
                *messages = Messages::default();
            }
        }
    }

    /// Releases runs that no slot has started, at no cost.
    pub(super) fn give_waiting_back(&mut self) -> EngineResult<()> {
        let waiting = if self.is_leaving() { self.backlog.take_all_waiting() } else { self.backlog.take_waiting() };
        if waiting.is_empty() {
            return Ok(());
        }
        let database = &self.place.database;
        let outcomes: Vec<Outcome> =
            waiting.iter().map(|run| Outcome::new(database, run, GivenBack::ClaimedAhead.end())).collect();
        let sent = match send_many(self.ctx, &outcomes.iter().collect::<Vec<_>>(), &mut |_| {}) {
            Ok(sent) => sent,
            Err(problem) => {
                self.backlog.put_back(waiting);
                return Err(problem);
            }
        };
        self.claimed = self.claimed.saturating_sub(u64::try_from(waiting.len()).unwrap_or(0));
        self.options.tally.ended(waiting.iter().zip(&sent).map(|(run, sent)| {
            let outcome = outcome_of_sent(RunEvent::Release, sent);
            CountedRun { class: &run.class, outcome, took: None, cpu_msecs: None }
        }));
        waiting.iter().for_each(|run| self.place.leases.let_go(run.run_id));
        Ok(())
    }
}
