//! The notifications that the starter of a handler receives, and its answers.

use super::capture::{Captured, Stream};
use crate::identities::identity::ProcessIdentity;
use taskqueue_domain::run::stop_reason::StopReason;

/// Whether an event line was a report, which restarts the timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsReport {
    /// It was: the timeout is restarted.
    Yes,
    /// It was not.
    No,
}

/// What the caller wants to do with a running handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Let it run.
    Continue,
    /// Ask it to end, unless it was already asked; its ending is
    /// [`Ending::Stopped`](taskqueue_domain::run::ending::Ending::Stopped).
    AskToEnd(StopReason),
    /// Kill it without asking first; its ending is [`Ending::Stopped`](taskqueue_domain::run::ending::Ending::Stopped).
    Kill,
}

/// Is notified about a handler. Every call must return quickly: the same thread watches the deadlines.
pub trait Observer {
    /// Called once after the start, before all other calls.
    fn started(&mut self, _handler: &ProcessIdentity) {}
    /// Called with bytes that it wrote, captured or not.
    fn output(&mut self, _stream: Stream, _bytes: &[u8]) {}
    /// Called now and then with the captured output so far, for a handler that runs for some seconds and has written more.
    fn output_so_far(&mut self, _stream: Stream, _so_far: Captured) {}
    /// Returns whether a reader follows its output now: then the output so far is passed on more often.
    fn is_followed(&self) -> bool {
        false
    }
    /// Called with a line from its descriptor 3 or from the event socket, without the newline; empty if it was longer than 1 MiB.
    fn event_line(&mut self, _line: &[u8]) -> IsReport {
        IsReport::No
    }
    /// Called at least every 500 ms, also while it is being ended.
    fn idle(&mut self) -> Control;
    /// Returns why it must end, after an alarm became readable.
    fn stop_reason(&self) -> StopReason {
        StopReason::Shutdown
    }
}
