//! One process of a pool, as all threads see it: pending output, its runs and its order. Guarded by the lock of the pool;
//! nothing here blocks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::protocol::{self, Hello, WireId};
use super::ticket::{Cause, Ticket};
use taskqueue_domain::run::stop_reason::StopReason;
use taskqueue_host::clock::Moment;
use taskqueue_host::net::waker::Waker;
use taskqueue_process::children::coprocess::Inlet;
use taskqueue_process::identities::identity::ProcessIdentity;

/// Messages are not written to a process with more unwritten bytes than this.
const MOST_WAITING_BYTES: u64 = 1 << 20;

/// What the keeper should do with the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Continue.
    Serve,
    /// Take no more runs; end when it has none.
    Retire,
    /// Ask it to end, and kill it after the grace.
    Terminate(Cause, StopReason),
    /// Kill it.
    Kill(Cause),
}

impl Order {
    fn rank(&self) -> u8 {
        match self {
            Self::Serve => 0,
            Self::Retire => 1,
            Self::Terminate(..) => 2,
            Self::Kill(_) => 3,
        }
    }
}

/// A run that the process has.
pub(super) struct InFlight {
    pub(super) ticket: Arc<Ticket>,
    /// How many bytes were written to the process before those of this run.
    pub(super) start: u64,
    /// Whether the process was asked to end this run.
    pub(super) was_asked: bool,
}

/// One process.
pub(super) struct Member {
    pub(super) number: u64,
    /// `None` until it has sent its hello.
    pub(super) hello: Option<Hello>,
    /// Unknown keys of its hello, until the first run that it answers has reported them.
    pub(super) unknown_keys: Vec<String>,
    pub(super) identity: Option<Arc<ProcessIdentity>>,
    pub(super) waker: Arc<Waker>,
    pub(super) started: Moment,
    pub(super) order: Order,
    /// Whether it is ending.
    pub(super) is_leaving: bool,
    pub(super) in_flight: HashMap<WireId, InFlight>,
    /// How many of its runs it was asked to end. While there are any it gets no new runs, because these might die with it.
    pub(super) asked: usize,
    /// How many runs it has received in total.
    pub(super) given: u64,
    /// Whether its keeper is running, and will write pending output before it sleeps.
    pub(super) keeper_is_awake: bool,
    pub(super) inlet: Option<Inlet>,
    outbox: Vec<u8>,
    /// How many bytes of the outbox were written.
    sent: usize,
    /// How many bytes were written in total.
    pub(super) written: u64,
}

impl Member {
    pub(super) fn new(number: u64, waker: Arc<Waker>) -> Self {
        Self {
            number,
            hello: None,
            unknown_keys: Vec::new(),
            identity: None,
            waker,
            started: Moment::now(),
            order: Order::Serve,
            is_leaving: false,
            in_flight: HashMap::new(),
            asked: 0,
            given: 0,
            keeper_is_awake: true,
            inlet: None,
            outbox: Vec::new(),
            sent: 0,
            written: 0,
        }
    }

    /// Returns how many more runs it can take now.
    pub(super) fn room(&self) -> usize {
        let takes_runs = self.order == Order::Serve && !self.is_leaving && self.asked == 0;
        let most = self.hello.filter(|_| takes_runs).map_or(0, |hello| hello.max_in_flight);
        most.saturating_sub(self.in_flight.len())
    }

    /// Returns true if it has reached the age. It must have had a run: a process that starts more slowly than `max_age` would
    /// never have any.
    pub(super) fn is_old(&self, max_age: Duration) -> bool {
        self.given > 0 && self.started.elapsed() >= max_age
    }

    pub(super) fn give(&mut self, id: WireId, message: &[u8], ticket: &Arc<Ticket>) {
        let start = self.written + self.waiting_bytes();
        self.in_flight.insert(id, InFlight { ticket: Arc::clone(ticket), start, was_asked: false });
        self.given += 1;
        self.say(message);
    }

    /// Queues a message. It is written at once if the keeper sleeps, which saves a thread switch.
    pub(super) fn say(&mut self, message: &[u8]) {
        self.outbox.extend_from_slice(message);
        if !self.keeper_is_awake && !self.flush() {
            // The keeper waits until it can write.
            self.wake_keeper();
        }
    }

    /// Writes pending output. Returns whether all of it was written.
    pub(super) fn flush(&mut self) -> bool {
        let Some(inlet) = &self.inlet else { return self.outbox.is_empty() };
        while let Some(rest) = self.outbox.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match inlet.write(rest) {
                Ok(0) => return false,
                Ok(count) => {
                    self.sent += count;
                    self.written += u64::try_from(count).unwrap_or_default();
                }
                // At worst the kernel lacks memory; then the timeout ends the run.
                Err(_) => return false,
            }
        }
        self.outbox.clear();
        self.sent = 0;
        // A large run must not keep its memory allocated.
        self.outbox.shrink_to(256 * 1024);
        true
    }

    /// Returns false while too much output is unwritten because the process does not read.
    pub(super) fn has_room_for_message(&self) -> bool {
        self.waiting_bytes() < MOST_WAITING_BYTES
    }

    fn waiting_bytes(&self) -> u64 {
        u64::try_from(self.outbox.len() - self.sent).unwrap_or_default()
    }

    /// Sets an order; a stronger one replaces a weaker one.
    pub(super) fn order(&mut self, order: Order) {
        if order.rank() > self.order.rank() {
            self.order = order;
            self.wake_keeper();
        }
    }

    fn wake_keeper(&mut self) {
        if !self.keeper_is_awake {
            self.waker.wake();
        }
    }

    /// Asks the process to end one run. Returns false if it no longer has the run.
    pub(super) fn ask_to_end(&mut self, id: WireId, reason: StopReason, grace: Duration) -> bool {
        let Some(run) = self.in_flight.get_mut(&id) else { return false };
        if !run.was_asked {
            run.was_asked = true;
            self.asked += 1;
        }
        if self.hello.is_some_and(|hello| hello.can_cancel) {
            self.say(&protocol::cancel(id, reason, grace));
        } else {
            // This is its only run.
            self.order(Order::Terminate(Cause::Run(id.run_id), reason));
        }
        true
    }

    pub(super) fn take(&mut self, id: WireId) -> Option<InFlight> {
        let run = self.in_flight.remove(&id)?;
        self.asked -= usize::from(run.was_asked);
        Some(run)
    }
}
