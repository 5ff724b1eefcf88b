//! Keeps the leases of this process, saves what its handlers report, reads the orders of operators, and notices cancelled runs.
//! It uses its own thread and connection. So neither a long handler nor a busy main thread causes a missed renewal, and a slow
//! database does not stop the watching of handlers.
//!
//! A call to the database may block this thread. Therefore a thread that executes a run must check [`Leases::lease_state`]
//! often, and give up when the lease can no longer be trusted.

mod inboxes;
mod open_inbox;
mod shared;
mod thread;

use std::sync::Arc;
use std::time::Duration;

use self::shared::HeldLease;
pub(crate) use self::shared::{LeaseState, Leases};
use crate::error::EngineResult;
use crate::handler::Inbox;
use crate::me::Me;
use crate::running::cancel_order::CancelOrder;
use crate::running::runner::orders::Orders;
use crate::running::unsaved::Unsaved;
use taskqueue_domain::limits::lease::LeaseTimes;
use taskqueue_domain::task::ids::{RunId, RunnerId, TaskId};
use taskqueue_host::clock::Moment;
use taskqueue_store::{DatabaseUrl, RunRef};

/// How long to wait for the end of the thread, which may be blocked in a call to the database.
const END_WAIT: Duration = Duration::from_secs(2);

/// Renews the leases until it is dropped.
pub(crate) struct LeaseKeeper {
    pub(crate) leases: Arc<Leases>,
}

/// A run whose lease must be kept.
pub(crate) struct Holding<'a> {
    /// The run.
    pub(crate) run: RunRef,
    /// Its class.
    pub(crate) class: &'a str,
    /// The lease is kept only while the handler is silent for no longer than this.
    pub(crate) silence: Duration,
}

impl LeaseKeeper {
    /// Starts to keep the lease of a runner whose registration was requested at `asked_at`.
    ///
    /// # Errors
    /// Returns an error if no thread can be started.
    pub(crate) fn start(
        url: &DatabaseUrl,
        runner_id: RunnerId,
        me: &Me,
        times: LeaseTimes,
        asked_at: Moment,
    ) -> EngineResult<Self> {
        let leases = Arc::new(Leases::new(runner_id, me, times, asked_at)?);
        thread::start(&leases, url)?;
        Ok(Self { leases })
    }
}

impl Leases {
    /// Also keeps the leases of these runs, which were claimed by a call made at `asked_at`.
    pub(crate) fn hold<'a>(&self, asked_at: Moment, runs: impl IntoIterator<Item = Holding<'a>>) {
        let trusted_until = asked_at.plus(self.times.trusted_for());
        let mut state = self.lock();
        let held_none = state.runs.is_empty();
        for Holding { run, class, silence } in runs {
            state.runs.insert(run.id, HeldLease::new(run, class, trusted_until, silence));
        }
        // If others are held, the next query for them includes these.
        if held_none {
            self.waker.wake();
        }
    }

    /// Returns the request to end a run; `None` if it is not held.
    pub(crate) fn cancel_order(&self, run_id: RunId) -> Option<Arc<CancelOrder>> {
        self.lock().runs.get(&run_id).map(|held| Arc::clone(&held.cancel))
    }

    /// Returns a function that opens the inbox of a run and borrows nothing. A run that is not held gets no messages.
    pub(crate) fn inbox_of(
        self: &Arc<Self>,
        run_id: RunId,
        task_id: TaskId,
    ) -> impl Fn() -> Inbox + Send + Sync + use<> + 'static {
        let leases = Arc::clone(self);
        move || leases.open_inbox(run_id, task_id)
    }

    /// Returns whether the output of a run is being read.
    pub(crate) fn is_followed(&self, run_id: RunId) -> bool {
        self.lock().runs.get(&run_id).is_some_and(|held| held.is_followed)
    }

    /// Records a report of the handler, which restarts its time of silence.
    pub(crate) fn heard_of(&self, run_id: RunId) {
        if let Some(held) = self.lock().runs.get_mut(&run_id) {
            held.renew_until = Moment::after(held.silence);
        }
    }

    /// Schedules an update of the run to be saved soon, unless the run ends first. Returns at once.
    pub(crate) fn save(&self, run_id: RunId, update: Unsaved) {
        let mut state = self.lock();
        let Some(held) = state.runs.get_mut(&run_id) else { return };
        let save_at = held.add_update(update);
        if save_at < state.sleeps_until {
            // Further calls need not wake it again.
            state.sleeps_until = save_at;
            self.waker.wake();
        }
    }

    /// Returns the unsaved updates of a run whose handler has ended. Its lease is kept for `kept_for`, so that its end can be
    /// recorded.
    pub(crate) fn take_unsaved(&self, run_id: RunId, kept_for: Duration) -> Unsaved {
        let mut state = self.lock();
        let give_up = Moment::after(END_WAIT);
        while state.saving == Some(run_id) && !give_up.has_passed() {
            state = self.wait(state, give_up.remaining());
        }
        let Some(held) = state.runs.get_mut(&run_id) else { return Unsaved::default() };
        held.renew_until = Moment::after(kept_for);
        held.take_update()
    }

    /// Stops keeping the lease of a run that has ended or was lost.
    pub(crate) fn let_go(&self, run_id: RunId) {
        self.lock().runs.remove(&run_id);
    }

    /// Frees memory of runs that are no longer held.
    pub(crate) fn shrink(&self) {
        self.lock().runs.shrink_to_fit();
    }

    /// Waits briefly until the database answers about a run whose lease has expired, and returns whether it did. After a
    /// suspension the answer comes soon; if the database is unreachable, it does not.
    pub(crate) fn was_answered(&self, run_id: RunId) -> bool {
        let give_up = Moment::after(END_WAIT);
        let mut state = self.lock();
        loop {
            match state.runs.get(&run_id).map(|held| held.lease.lease_state()) {
                Some(LeaseState::Over) if !give_up.has_passed() => {
                    state = self.wait(state, give_up.remaining());
                }
                lease_state => return matches!(lease_state, Some(LeaseState::Lost | LeaseState::Held)),
            }
        }
    }

    /// Returns how long a handler may take to end after its lease has expired.
    pub(crate) fn notice(&self) -> Duration {
        self.times.notice()
    }

    /// Returns the held runs.
    pub(crate) fn held_runs(&self) -> Vec<RunId> {
        self.lock().runs.keys().copied().collect()
    }

    /// Returns the orders of operators.
    pub(crate) fn orders(&self) -> Orders {
        self.orders.clone()
    }

    /// Returns the state of the runner's own lease: whether it still has its slots and may claim.
    pub(crate) fn runner_lease_state(&self) -> LeaseState {
        self.lock().runner.lease_state()
    }
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        let leases = &self.leases;
        let mut state = leases.lock();
        state.is_ending = true;
        leases.waker.wake();
        let give_up = Moment::after(END_WAIT);
        while !state.has_ended && !give_up.has_passed() {
            state = leases.wait(state, give_up.remaining());
        }
    }
}
