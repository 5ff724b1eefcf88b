//! That a run is to end, as the threads of its runner pass it on: the one that hears of it from the database, the one that
//! watches the handler, and those of a handler in Rust.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::OnceLock;

use crate::handler::CancelToken;
use taskqueue_process::signals::stop_signals::Alarm;

/// Of one run.
pub(crate) struct CancelOrder {
    reason: OnceLock<String>,
    token: CancelToken,
    /// Made for whoever waits at a descriptor: many runs may be held that need none. Missing where no descriptor was left for
    /// it, and then no handler can be started either.
    alarm: OnceLock<Option<Alarm>>,
}

impl CancelOrder {
    pub(crate) fn new() -> Self {
        Self { reason: OnceLock::new(), token: CancelToken::default(), alarm: OnceLock::new() }
    }

    /// The run is to end, for this reason.
    pub(crate) fn give(&self, reason: String) {
        if self.reason.set(reason).is_ok() {
            self.token.cancel();
            self.ring();
        }
    }

    /// Why, if it is to end.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// Readable once it is to end.
    pub(crate) fn alarm(&self) -> Option<BorrowedFd<'_>> {
        self.alarm.get_or_init(|| Alarm::new().ok());
        // Given before the alarm was made: whoever gave it could not ring.
        if self.reason().is_some() {
            self.ring();
        }
        self.alarm.get()?.as_ref().map(Alarm::as_fd)
    }

    fn ring(&self) {
        if let Some(Some(alarm)) = self.alarm.get() {
            alarm.ring();
        }
    }

    pub(crate) fn token(&self) -> CancelToken {
        self.token.clone()
    }
}
