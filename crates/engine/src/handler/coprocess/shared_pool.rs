//! The state that the pool of a class and the keepers of its processes share.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::coprocess_handler::CoprocessHandler;
use super::member::Member;
use super::ticket::Ticket;
use taskqueue_domain::run::ending::Ending;
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_process::identities::identity::ProcessIdentity;

/// The shared data of the processes of one class.
pub(super) struct SharedPool {
    pub(super) handler: CoprocessHandler,
    /// The class of the run for which the pool was made. If several classes share the pool, no argument depends on it.
    pub(super) class: TaskClass,
    /// Identifies the runner in the environment of its processes.
    pub(super) runner: ProcessIdentity,
    state: Mutex<PoolState>,
}

impl SharedPool {
    pub(super) fn new(handler: CoprocessHandler, class: TaskClass, runner: ProcessIdentity) -> Self {
        Self { handler, class, runner, state: Mutex::new(PoolState::default()) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The mutable part.
#[derive(Default)]
pub(super) struct PoolState {
    pub(super) members: Vec<Member>,
    /// Tickets that wait for a process.
    pub(super) waiting: Vec<Arc<Ticket>>,
    pub(super) next_number: u64,
    /// How many runs at once the last process accepted that sent a hello.
    pub(super) capacity: Option<usize>,
    /// How many starts have failed, and how the last one failed.
    pub(super) failures: u64,
    pub(super) failure: Option<Ending>,
    pub(super) is_closed: bool,
}

impl PoolState {
    pub(super) fn member(&mut self, number: u64) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.number == number)
    }

    /// Wakes all tickets that wait for a process, so that they try again.
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
