//! What is told of a run to whoever watches it, from the claim to the end.

use std::time::Duration;

use taskqueue_domain::run::attempt_outcome::AttemptOutcome;
use taskqueue_domain::run::decision::{Decision, rule_without_retry};
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::ids::RunId;
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_process::children::child::Stream;
use taskqueue_store::Ended;

/// Hears what a run does while it is processed.
pub trait RunListener: Send {
    /// Whether somebody hears what this is told.
    fn is_heard(&self) -> bool {
        true
    }
    /// The runner was told to stop; these runs may go on for so long, and are given back then. Without any time their handlers
    /// are asked to end at once.
    fn stopping(&mut self, runs: &[RunId], wait: Duration);
    /// It was claimed and is about to start.
    fn claimed(&mut self, run: &ClaimedRun);
    /// Its handler wrote this.
    fn output(&mut self, stream: Stream, bytes: &[u8]);
    /// No handler could be started, for want of a process, memory or a descriptor; so many slots may work for now.
    fn lacks_room(&mut self, _why: &str, _slots: usize) {}
    /// Its handler, a Rust type, did not end when it was asked to, and its thread was left behind: one of so many, of at most so
    /// many.
    fn left_behind(&mut self, _run: &ClaimedRun, _threads: usize, _most: usize) {}
    /// It ended.
    fn ended(&mut self, run: &ClaimedRun, outcome: &RunOutcome);
}

/// How the execution of a run went.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// What was decided; once it is recorded, as the store has it.
    pub decision: Decision,
    /// Exit status for a caller who wants to end as the handler did.
    pub exit_code: u8,
    /// The status that the run had when somebody else was first; the outcome is then only kept as an event.
    pub lost_to: Option<String>,
    /// Whether it failed or timed out, and its task is not retried.
    pub is_given_up: bool,
    /// Processes of the handler that could not be ended.
    pub unended: Option<String>,
    /// Whether its handler, a Rust type, did not end, so that its thread was left behind.
    pub is_left_behind: bool,
}

impl RunOutcome {
    /// What the end means for the task.
    #[must_use]
    pub const fn outcome(&self) -> AttemptOutcome {
        AttemptOutcome::of(self.decision.event, self.is_given_up)
    }

    /// The store has given this answer.
    pub(crate) fn answered(&mut self, ended: Ended) {
        match ended {
            Ended::Recorded => {}
            Ended::GivenUp => {
                self.is_given_up = true;
                self.decision.rule = rule_without_retry(&self.decision.rule);
            }
            Ended::Cancelled => {
                self.decision.event = RunEvent::Cancel;
                self.decision.rule = format!("cancelled; {}", self.decision.rule);
            }
            Ended::Lost { found } => self.lost_to = Some(found),
        }
    }
}
