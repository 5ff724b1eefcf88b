//! Passes the request to end a run between the threads of its runner: the one that reads it from the database, the one that
//! watches the handler, and those of a Rust handler.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::OnceLock;

use crate::handler::CancelToken;
use taskqueue_host::net::waker::Waker;

/// The request to end one run.
pub(crate) struct CancelOrder {
    reason: OnceLock<String>,
    token: CancelToken,
    /// Created when a thread waits at the descriptor, because most runs need none. Missing if no descriptor was available; then
    /// no handler can be started either.
    alarm: OnceLock<Option<Waker>>,
}

impl CancelOrder {
    pub(crate) fn new() -> Self {
        Self { reason: OnceLock::new(), token: CancelToken::default(), alarm: OnceLock::new() }
    }

    /// Requests the end of the run, for this reason.
    pub(crate) fn give(&self, reason: String) {
        if self.reason.set(reason).is_ok() {
            self.token.cancel();
            self.ring();
        }
    }

    /// Returns the reason, if the run should end.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// Returns a descriptor that is readable once the run should end.
    pub(crate) fn alarm(&self) -> Option<BorrowedFd<'_>> {
        self.alarm.get_or_init(|| Waker::new().ok());
        // The request may have come before the alarm was created.
        if self.reason().is_some() {
            self.ring();
        }
        self.alarm.get()?.as_ref().map(Waker::as_fd)
    }

    fn ring(&self) {
        if let Some(Some(alarm)) = self.alarm.get() {
            alarm.wake();
        }
    }

    pub(crate) fn token(&self) -> CancelToken {
        self.token.clone()
    }
}
