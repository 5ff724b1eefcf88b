//! Notifications about a run to an observer, from the claim to the end.

use std::time::Duration;

use taskqueue_domain::run::attempt_outcome::AttemptOutcome;
use taskqueue_domain::run::decision::{Decision, rule_without_retry};
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::ids::RunId;
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_process::children::child::Stream;
use taskqueue_store::EndResult;

/// Receives notifications about a run while it is processed.
pub trait RunListener: Send {
    /// The runner was asked to stop. These runs may continue for `wait` and are then released; without a wait, their handlers
    /// are asked to end at once.
    fn stopping(&mut self, runs: &[RunId], wait: Duration);
    /// The run was claimed and is about to start.
    fn claimed(&mut self, _run: &ClaimedRun) {}
    /// The handler wrote output.
    fn output(&mut self, _stream: Stream, _bytes: &[u8]) {}
    /// A handler could not be started because processes, memory or descriptors were exhausted; `slots` slots may work for now.
    fn lacks_room(&mut self, _why: &str, _slots: usize) {}
    /// A Rust handler did not end when asked to, and its thread was left behind: now `threads` of at most `most`.
    fn left_behind(&mut self, _run: &ClaimedRun, _threads: usize, _most: usize) {}
    /// The run ended.
    fn ended(&mut self, run: &ClaimedRun, outcome: &RunOutcome);
}

/// The result of executing a run.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// The decision; once it is recorded, as the store has it.
    pub decision: Decision,
    /// The exit status for a caller that exits as the handler did.
    pub exit_code: u8,
    /// The status of the run if another process ended it first; the outcome is then only kept as an event.
    pub lost_to: Option<String>,
    /// Whether it failed or timed out and the task is not retried.
    pub is_given_up: bool,
    /// Why processes of the handler could not be ended.
    pub unended: Option<String>,
    /// Whether its Rust handler did not end, so that its thread was left behind.
    pub is_left_behind: bool,
}

impl RunOutcome {
    /// Returns what the end means for the task.
    #[must_use]
    pub const fn outcome(&self) -> AttemptOutcome {
        AttemptOutcome::of(self.decision.event, self.is_given_up)
    }

    /// Applies the answer of the store.
    pub(crate) fn answered(&mut self, ended: EndResult) {
        match ended {
            EndResult::Recorded => {}
            EndResult::GivenUp => {
                self.is_given_up = true;
                self.decision.rule = rule_without_retry(&self.decision.rule);
            }
            EndResult::Cancelled => {
                self.decision.event = RunEvent::Cancel;
                self.decision.rule = format!("cancelled; {}", self.decision.rule);
            }
            EndResult::Lost { found } => self.lost_to = Some(found),
        }
    }
}
