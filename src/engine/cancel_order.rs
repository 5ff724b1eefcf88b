//! That a run is to end, as the threads of its runner pass it on: the one that hears of it from the database, the one that
//! watches the handler, and those of a handler in Rust.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::OnceLock;

use crate::handler::CancelToken;
use crate::os::stop_signals::Alarm;

/// Of one run.
pub(super) struct CancelOrder {
    reason: OnceLock<String>,
    token: CancelToken,
    /// Missing where no descriptor was left for it, and then no handler can be started either.
    alarm: Option<Alarm>,
}

impl CancelOrder {
    pub(super) fn new() -> Self {
        Self { reason: OnceLock::new(), token: CancelToken::default(), alarm: Alarm::new().ok() }
    }

    /// The run is to end, for this reason.
    pub(super) fn give(&self, reason: String) {
        if self.reason.set(reason).is_ok() {
            self.token.cancel();
            if let Some(alarm) = &self.alarm {
                alarm.ring();
            }
        }
    }

    /// Why, if it is to end.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// Readable once it is to end.
    pub(super) fn alarm(&self) -> Option<BorrowedFd<'_>> {
        self.alarm.as_ref().map(Alarm::as_fd)
    }

    pub(super) fn token(&self) -> CancelToken {
        self.token.clone()
    }
}
