//! The processes of one class, and the runs that wait for one.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::coprocess_handler::CoprocessHandler;
use super::member::{Member, Order};
use super::protocol::{self, WireId};
use super::ticket::{Cause, Ticket};
use crate::handler::Inbox;
use taskqueue_domain::run::ending::Ending;
use taskqueue_domain::run::stop_reason::StopReason;
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_process::identities::identity::ProcessIdentity;

/// The processes of one class.
pub(super) struct Pool {
    pub(super) handler: CoprocessHandler,
    /// The class of the run for which the pool was made. If several classes share the pool, no argument depends on it.
    pub(super) class: TaskClass,
    /// Identifies the runner in the environment of its processes.
    pub(super) runner: ProcessIdentity,
    state: Mutex<PoolState>,
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
    /// The threads of the processes.
    pub(super) keepers: Vec<JoinHandle<()>>,
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

impl Pool {
    pub(super) fn new(handler: CoprocessHandler, class: TaskClass, runner: ProcessIdentity) -> Arc<Self> {
        Arc::new(Self { handler, class, runner, state: Mutex::default() })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many starts have failed so far.
    pub(super) fn failures(&self) -> u64 {
        self.state().failures
    }

    /// Removes a ticket that no longer waits.
    pub(super) fn leave(&self, ticket: &Arc<Ticket>) {
        self.state().waiting.retain(|other| !Arc::ptr_eq(other, ticket));
    }

    /// Passes on the messages to this run, as far as its process reads them.
    pub(super) fn pass_messages(&self, member: u64, id: WireId, inbox: &Inbox) {
        let mut state = self.state();
        let Some(member) = state.member(member).filter(|member| member.in_flight.contains_key(&id)) else { return };
        while member.has_room_for_message()
            && let Some(message) = inbox.take()
        {
            // Messages that are not JSON were dropped before.
            if let Ok(line) = protocol::to_run(id, &message) {
                member.say(&line);
            }
        }
    }

    /// Asks for the end of a single run.
    pub(super) fn ask_to_end(&self, member: u64, id: WireId, reason: StopReason) {
        if let Some(member) = self.state().member(member) {
            member.ask_to_end(id, reason, self.handler.command.kill_grace);
        }
    }

    /// Kills the process that has this run.
    pub(super) fn kill(&self, member: u64, id: WireId) {
        if let Some(member) = self.state().member(member)
            && member.in_flight.contains_key(&id)
        {
            member.order(Order::Kill(Cause::Run(id.run_id)));
        }
    }

    /// Makes each process end when it has no run.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        for member in &mut state.members {
            member.order(Order::Retire);
        }
        state.call_waiting();
    }

    /// Waits until all processes that were asked to end have ended.
    pub(super) fn wait(&self) {
        let keepers = mem::take(&mut self.state().keepers);
        for keeper in keepers {
            let _ = keeper.join();
        }
    }

    /// Returns true if no process is left.
    pub(super) fn has_ended(&self) -> bool {
        self.state().members.is_empty()
    }
}
