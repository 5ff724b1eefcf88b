//! How much memory the worker itself uses, its handlers apart: one that has become too large makes way for a new one.

use std::time::Duration;

use crate::os::clock::Moment;
use crate::os::identity::ProcessIdentity;
use crate::os::usage::memory_bytes;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Memory {
    most_bytes: Option<u64>,
    look_at: Moment,
    is_too_large: bool,
}

impl Memory {
    /// Without a limit it is never too large.
    pub(super) fn new(most_bytes: Option<u64>) -> Self {
        Self { most_bytes, look_at: Moment::now(), is_too_large: false }
    }

    /// Whether it was found to be too large; once it was, it stays so.
    pub(super) const fn is_too_large(&self) -> bool {
        self.is_too_large
    }

    /// Looks now and then, and returns once, when it is found to be too large, how large it is and may be, in bytes. Not before
    /// a run has been processed: one that is too large from the start would never do any.
    pub(super) fn look(&mut self, processed: u64) -> Option<(u64, u64)> {
        let most_bytes = self.most_bytes.filter(|_| processed > 0 && !self.is_too_large)?;
        if !self.look_at.has_passed() {
            return None;
        }
        self.look_at = Moment::after(LOOK_EVERY);
        let used_bytes = memory_bytes(&ProcessIdentity::own().ok()?)?;
        self.is_too_large = used_bytes > most_bytes;
        self.is_too_large.then_some((used_bytes, most_bytes))
    }
}
