//! How much memory the worker itself uses, its handlers apart: one that has become too large makes way for a new one, and one
//! that has nothing to do keeps none that it does not need.

use std::time::Duration;

use taskqueue_host::clock::Moment;
use taskqueue_host::machine::heap;
use taskqueue_process::identities::identity::ProcessIdentity;
use taskqueue_process::identities::usage::memory_bytes;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two batches it would be asked for at once what was given back.
const REST: Duration = Duration::from_millis(500);
/// Fewer runs leave too little to be worth the call.
const MANY_RUNS: u64 = 1_000;

pub(super) struct Memory {
    most_bytes: Option<u64>,
    next_check_at: Moment,
    is_too_large: bool,
    /// How many runs had been claimed when free memory was given back.
    given_back_at: u64,
}

impl Memory {
    /// Without a limit it is never too large.
    pub(super) fn new(most_bytes: Option<u64>) -> Self {
        Self { most_bytes, next_check_at: Moment::now(), is_too_large: false, given_back_at: 0 }
    }

    /// Whether it was found to be too large; once it was, it stays so.
    pub(super) const fn is_too_large(&self) -> bool {
        self.is_too_large
    }

    /// Gives back what many runs have left free in the heap, once, when there has been nothing to do for a moment; what `shrink`
    /// frees as well.
    pub(super) fn give_back(&mut self, claimed: u64, idle: Duration, shrink: impl FnOnce()) {
        if idle >= REST && claimed - self.given_back_at >= MANY_RUNS {
            self.given_back_at = claimed;
            shrink();
            heap::give_back();
        }
    }

    /// Looks now and then, and returns once, when it is found to be too large, how large it is and may be, in bytes. Not before
    /// a run has been processed: one that is too large from the start would never do any.
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
