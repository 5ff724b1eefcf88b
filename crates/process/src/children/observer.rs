//! What whoever starts a handler is told about it, and what it may answer.

use super::capture::{Captured, Stream};
use crate::identities::identity::ProcessIdentity;
use taskqueue_domain::run::stop_reason::StopReason;

/// Whether an event line was a report, which starts the timeout again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It was: the timeout is counted from now.
    Yes,
    /// It was not.
    No,
}

/// What the caller wants of a running handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Let it run.
    Continue,
    /// Ask it to end, unless it was asked already; its ending is [`Ending::Stopped`](taskqueue_domain::run::ending::Ending::Stopped).
    AskToEnd(StopReason),
    /// Kill it, without asking it first; its ending is [`Ending::Stopped`](taskqueue_domain::run::ending::Ending::Stopped).
    Kill,
}

/// Is told what happens to a handler. Every call must return soon: the deadlines are watched by the same thread.
pub trait Observer {
    /// It was started; called once, before anything else.
    fn started(&mut self, handler: &ProcessIdentity);
    /// Every byte it wrote, whatever is kept of them.
    fn output(&mut self, stream: Stream, bytes: &[u8]);
    /// What is kept of one of its outputs so far; now and then, of one that goes on for some seconds and has written more.
    fn output_so_far(&mut self, _stream: Stream, _so_far: Captured) {}
    /// A line from its descriptor 3 or from the event socket, without the newline; empty if it had more than 1 MiB.
    fn event_line(&mut self, line: &[u8]) -> Keep;
    /// Called at least every 500 ms, also while it is being ended.
    fn idle(&mut self) -> Control;
    /// Why it is to end, once an alarm was readable.
    fn stop_reason(&self) -> StopReason {
        StopReason::Shutdown
    }
}
