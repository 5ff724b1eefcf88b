//! What the pool of a class and the keepers of its processes share: what the class is, and how it stands.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::CoprocessHandler;
use super::member::Member;
use super::ticket::Ticket;
use taskqueue_domain::run::ending::Ending;
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_process::identities::identity::ProcessIdentity;

/// The processes of one class, as the threads know them that work for it.
pub(super) struct SharedPool {
    pub(super) handler: CoprocessHandler,
    /// Of the run for which it was made: no argument depends on it where runs of several classes share the processes.
    pub(super) class: TaskClass,
    /// Names the runner in the environment of its processes.
    pub(super) runner: ProcessIdentity,
    state: Mutex<State>,
}

impl SharedPool {
    pub(super) fn new(handler: CoprocessHandler, class: TaskClass, runner: ProcessIdentity) -> Self {
        Self { handler, class, runner, state: Mutex::new(State::default()) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What everybody shares.
#[derive(Default)]
pub(super) struct State {
    pub(super) members: Vec<Member>,
    /// Those who wait for a place.
    pub(super) waiting: Vec<Arc<Ticket>>,
    pub(super) next_number: u64,
    /// How many runs at once the last one took that said it.
    pub(super) capacity: Option<usize>,
    /// Starts that failed, and how the last one did.
    pub(super) failures: u64,
    pub(super) failure: Option<Ending>,
    pub(super) is_closed: bool,
}

impl State {
    pub(super) fn member(&mut self, number: u64) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.number == number)
    }

    /// Lets everybody look again who waits for a place.
    pub(super) fn call_waiting(&mut self) {
        for ticket in mem::take(&mut self.waiting) {
            ticket.call();
        }
    }

    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn said_hello(&mut self, capacity: usize) {
        self.capacity = Some(capacity);
        self.call_waiting();
    }

    pub(super) fn could_not_start(&mut self, ending: Ending) {
        self.failures += 1;
        self.failure = Some(ending);
        self.call_waiting();
    }
}
