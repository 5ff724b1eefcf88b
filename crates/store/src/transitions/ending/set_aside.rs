//! Sets aside tasks whose rows cannot be read: the run ends, the task is quarantined, and all other tasks are processed.

use crate::Store;
use crate::records::runs::RunRef;
use crate::transitions::ending::run_end::RunEnd;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::text::unreadable::{UNREADABLE_CODE, Unreadable};

/// Claimed runs that cannot be passed to a handler, each with the unreadable column.
pub(crate) type UnreadableRuns = Vec<(RunRef, Unreadable)>;

impl Store {
    /// Ends these runs and quarantines their tasks. After the claim, not in it: under the lock of a claim, MySQL and MariaDB
    /// cannot write other tables. Sends the usual notice of a quarantine, once.
    pub(in crate::transitions) fn set_aside(&mut self, aside: UnreadableRuns) {
        for (run, problem) in aside {
            let end = RunEnd {
                unreadable: Some(problem.clone()),
                ..RunEnd::of(RunEvent::Fail, UNREADABLE_CODE, &problem.message(), "quarantined: its row cannot be read")
            };
            // An error here must not lose the other claimed runs. If this run does not end, its lease expires.
            let _ = self.end_run(&run, &end);
        }
    }
}
