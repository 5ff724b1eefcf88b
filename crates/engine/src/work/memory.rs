//! The memory of the worker itself, without its handlers. A worker that has become too large exits, so that a new one replaces
//! it; an idle worker returns unused memory to the system.

use std::time::Duration;

use taskqueue_host::clock::Moment;
use taskqueue_host::machine::own_memory;
use taskqueue_process::identities::identity::ProcessIdentity;
use taskqueue_process::identities::usage::memory_bytes;

/// The pause between two checks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A worker that is idle for a shorter time would need the memory again at once.
const REST: Duration = Duration::from_millis(500);
/// After fewer runs there is too little to free.
const MANY_RUNS: u64 = 1_000;

pub(super) struct MemoryLimit {
    most_bytes: Option<u64>,
    next_check_at: Moment,
    is_too_large: bool,
    /// How many runs had been claimed when memory was last freed; `None` if it never was.
    given_back_at: Option<u64>,
}

impl MemoryLimit {
    /// Creates it; without a limit the worker is never too large.
    pub(super) fn new(most_bytes: Option<u64>) -> Self {
        Self { most_bytes, next_check_at: Moment::now(), is_too_large: false, given_back_at: None }
    }

    /// Returns true if it was ever found to be too large.
    pub(super) const fn is_too_large(&self) -> bool {
        self.is_too_large
    }

    /// Frees memory after its start and after many runs, once the worker has been idle for a moment; calls `shrink` before.
    pub(super) fn give_back(&mut self, claimed: u64, idle: Duration, shrink: impl FnOnce()) {
        if idle >= REST && self.given_back_at.is_none_or(|before| claimed - before >= MANY_RUNS) {
            self.given_back_at = Some(claimed);
            shrink();
            own_memory::give_back();
        }
    }

    /// Checks the memory from time to time. Returns its size and the limit in bytes, once, when the limit is exceeded. Not
    /// before a run was processed: a worker that is too large from the start would process none.
    pub(super) fn look(&mut self, processed: u64) -> Option<(u64, u64)> {
        let most_bytes = self.most_bytes.filter(|_| processed > 0 && !self.is_too_large)?;
        if !self.next_check_at.has_passed() {
            return None;
        }
        self.next_check_at = Moment::after(LOOK_EVERY);
        let used_bytes = memory_bytes(&ProcessIdentity::own().ok()?)?;
        self.is_too_large = used_bytes > most_bytes;
        self.is_too_large.then_some((used_bytes, most_bytes))
    }
}
