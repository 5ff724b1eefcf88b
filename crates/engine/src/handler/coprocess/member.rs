//! One process of a pool, as everybody who shares it sees it: what waits to be written to it, which runs it has, and what
//! it is to do next. Guarded by the lock of the pool; nothing here blocks.

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

/// Messages are not written to a process for which more than this waits.
const MOST_WAITING_BYTES: u64 = 1 << 20;

/// What its keeper is to do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Go on.
    Serve,
    /// No more runs; it ends when it has none.
    Retire,
    /// It is asked to end, and killed after the grace.
    Terminate(Cause, StopReason),
    /// It is killed.
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

/// A run that it has.
pub(super) struct InFlight {
    pub(super) ticket: Arc<Ticket>,
    /// How many bytes went to it before those of this run.
    pub(super) start: u64,
    /// Whether it was asked to end this run.
    pub(super) was_asked: bool,
}

/// One process.
pub(super) struct Member {
    pub(super) number: u64,
    /// `None` until it has said its hello.
    pub(super) hello: Option<Hello>,
    /// Keys of its hello that mean nothing, until the first run that it answers has named them.
    pub(super) unknown_keys: Vec<String>,
    pub(super) identity: Option<Arc<ProcessIdentity>>,
    pub(super) waker: Arc<Waker>,
    pub(super) started: Moment,
    pub(super) order: Order,
    /// Whether its end has begun.
    pub(super) is_leaving: bool,
    pub(super) in_flight: HashMap<WireId, InFlight>,
    /// Runs that it was asked to end and still has: it gets no new ones, which might have to die with it.
    pub(super) asked: usize,
    /// Runs that it was given in all.
    pub(super) given: u64,
    /// Whether its keeper is at work and will write what waits before it sleeps.
    pub(super) keeper_is_awake: bool,
    pub(super) inlet: Option<Inlet>,
    outbox: Vec<u8>,
    /// How much of the outbox was written.
    sent: usize,
    /// How much was written in all.
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

    /// How many more runs it can be given now.
    pub(super) fn room(&self) -> usize {
        let takes_runs = self.order == Order::Serve && !self.is_leaving && self.asked == 0;
        let most = self.hello.filter(|_| takes_runs).map_or(0, |hello| hello.max_in_flight);
        most.saturating_sub(self.in_flight.len())
    }

    /// Not before it has had a run: one that takes longer to start than it may live would never have any.
    pub(super) fn is_old(&self, max_age: Duration) -> bool {
        self.given > 0 && self.started.elapsed() >= max_age
    }

    pub(super) fn give(&mut self, id: WireId, message: &[u8], ticket: &Arc<Ticket>) {
        let start = self.written + self.waiting_bytes();
        self.in_flight.insert(id, InFlight { ticket: Arc::clone(ticket), start, was_asked: false });
        self.given += 1;
        self.say(message);
    }

    /// It is written at once if its keeper sleeps: that costs no change of threads.
    pub(super) fn say(&mut self, message: &[u8]) {
        self.outbox.extend_from_slice(message);
        if !self.keeper_is_awake && !self.flush() {
            // The keeper waits for room.
            self.wake_keeper();
        }
    }

    /// Whether nothing waits any more.
    pub(super) fn flush(&mut self) -> bool {
        let Some(inlet) = &self.inlet else { return self.outbox.is_empty() };
        while let Some(rest) = self.outbox.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match inlet.write(rest) {
                Ok(0) => return false,
                Ok(count) => {
                    self.sent += count;
                    self.written += u64::try_from(count).unwrap_or_default();
                }
                // Want of kernel memory at the worst: its timeout ends what cannot be written.
                Err(_) => return false,
            }
        }
        self.outbox.clear();
        self.sent = 0;
        // One large run must not hold its memory for ever.
        self.outbox.shrink_to(256 * 1024);
        true
    }

    /// Returns false while it does not read what waits for it.
    pub(super) fn has_room_for_message(&self) -> bool {
        self.waiting_bytes() < MOST_WAITING_BYTES
    }

    fn waiting_bytes(&self) -> u64 {
        u64::try_from(self.outbox.len() - self.sent).unwrap_or_default()
    }

    /// A stronger order replaces a weaker one.
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

    /// Asks for the end of one run. `false` when it does not have it any more.
    pub(super) fn ask_to_end(&mut self, id: WireId, reason: StopReason, grace: Duration) -> bool {
        let Some(run) = self.in_flight.get_mut(&id) else { return false };
        if !run.was_asked {
            run.was_asked = true;
            self.asked += 1;
        }
        if self.hello.is_some_and(|hello| hello.can_cancel) {
            self.say(&protocol::cancel(id, reason, grace));
        } else {
            // It has this run only.
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
