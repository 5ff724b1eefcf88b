//! What a claimant asks for.

use std::time::Duration;

use wildmatch::WildMatch;

use taskqueue_domain::run::claimant::ClaimantId;
use taskqueue_domain::task::choosing::task_choice::TaskChoice;
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_process::identities::identity::ProcessIdentity;

/// The largest number of runs in one claim.
pub const MAX_COUNT: u16 = 1_000;

/// A claim: the claimant and the runs that it accepts.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The name of the claimant.
    pub claimant: ClaimantId,
    /// Names of classes, or patterns with `*` and `?`; empty accepts all classes.
    pub classes: Vec<String>,
    /// Further conditions on the tasks; the default accepts all.
    pub choice: TaskChoice,
    /// The largest number of runs to claim.
    pub count: usize,
    /// How long to wait for a claimable run.
    pub wait: Duration,
    /// The claimant's process, if it is on this host.
    pub process: Option<ProcessIdentity>,
}

impl ClaimRequest {
    /// Returns true if the request accepts runs of this class.
    pub(crate) fn offers(&self, class: &TaskClass) -> bool {
        self.classes.is_empty() || self.classes.iter().any(|pattern| WildMatch::new(pattern).matches(class))
    }
}
