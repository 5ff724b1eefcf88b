//! A task whose row cannot be read is set aside: its run ends, it is quarantined, and all others go on.

use super::run_end::RunEnd;
use crate::Store;
use crate::runs::RunRef;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::text::unreadable::{UNREADABLE_CODE, Unreadable};

/// Runs that a claim has taken and that no handler can get, each with what cannot be read.
#[derive(Clone, Debug, Default)]
pub(super) struct UnreadableRuns(Vec<(RunRef, Unreadable)>);

impl UnreadableRuns {
    pub(super) fn add(&mut self, run: RunRef, problem: Unreadable) {
        self.0.push((run, problem));
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Before the closure of a claim runs again.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Store {
    /// Ends these runs and quarantines their tasks. After the claim, not in it: MySQL and MariaDB write no other table under the
    /// lock of a claim. The notice is the one of every quarantine, so it comes once.
    pub(super) fn set_aside(&mut self, aside: UnreadableRuns) {
        for (run, problem) in aside.0 {
            let end = RunEnd {
                unreadable: Some(problem.clone()),
                ..RunEnd::of(RunEvent::Fail, UNREADABLE_CODE, &problem.message(), "quarantined: its row cannot be read")
            };
            // What else was claimed must not be lost by an error here: without an end, the lease of this run expires.
            let _ = self.end_run(&run, &end);
        }
    }
}
