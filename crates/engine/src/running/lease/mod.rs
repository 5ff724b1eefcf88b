//! Keeps the leases of this process, saves what its handlers report, looks what operators have ordered and hears which of
//! its runs are cancelled: a thread and a connection of its own, so that neither a long handler nor a busy main thread looks
//! like a dead runner, and a database that is slow or away keeps nobody from watching the handler.
//!
//! The thread may hang in a call to the database. A thread that works for a run therefore asks [`Leases::lease_state`] by
//! itself, often enough, and gives up when the lease can no longer be trusted.

mod inboxes;
mod shared;
mod thread;

use std::sync::Arc;
use std::time::Duration;

use self::shared::{HeldRun, Shared};
use super::cancel_order::CancelOrder;
use super::unsaved::Unsaved;
use crate::claiming::orders::Orders;
use crate::handler::Inbox;
use crate::{EngineResult, Me};
use taskqueue_domain::run::lease::LeaseTimes;
use taskqueue_domain::task::ids::{RunId, RunnerId, TaskId};
use taskqueue_host::clock::Moment;
use taskqueue_store::{DatabaseUrl, RunRef};

/// How long the end of the thread is waited for; it may hang in a call to a database that does not answer.
const END_WAIT: Duration = Duration::from_secs(2);

/// Where a run, or the runner itself, stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseState {
    /// The lease can be trusted.
    Held,
    /// The database said that it is somebody else's.
    Lost,
    /// It was not renewed in time: somebody else may take it any moment now.
    Over,
}

/// The leases of this process, for every thread that executes its runs.
#[derive(Clone)]
pub(crate) struct Leases {
    shared: Arc<Shared>,
}

/// Renews them until it is dropped.
pub(crate) struct LeaseKeeper {
    leases: Leases,
}

/// A run whose lease is to be kept.
pub(crate) struct Holding<'a> {
    /// The run.
    pub(crate) run: RunRef,
    /// Its class.
    pub(crate) class: &'a str,
    /// Its lease is kept for as long as its handler is silent for no longer than this.
    pub(crate) silence: Duration,
}

impl LeaseKeeper {
    /// Begins to keep the lease of a runner that asked to be registered at this moment.
    ///
    /// # Errors
    /// When no thread can be had.
    pub(crate) fn start(
        url: &DatabaseUrl,
        runner_id: RunnerId,
        me: &Me,
        times: LeaseTimes,
        asked_at: Moment,
    ) -> EngineResult<Self> {
        let shared = Arc::new(Shared::new(runner_id, me, times, asked_at)?);
        thread::start(&shared, url)?;
        Ok(Self { leases: Leases { shared } })
    }

    /// What it renews.
    pub(crate) const fn leases(&self) -> &Leases {
        &self.leases
    }
}

impl Leases {
    /// Also keeps the leases of these runs, which were claimed by a call made at `asked_at`.
    pub(crate) fn hold<'a>(&self, asked_at: Moment, runs: impl IntoIterator<Item = Holding<'a>>) {
        let trusted_until = asked_at.plus(self.shared.times.trusted_for());
        let mut state = self.shared.lock();
        let held_none = state.runs.is_empty();
        for Holding { run, class, silence } in runs {
            state.runs.insert(run.id, HeldRun::new(run, class, trusted_until, silence));
        }
        // Among others it is asked for with them.
        if held_none {
            self.shared.waker.wake();
        }
    }

    /// What says that a run is to end; `None` for one that is not held.
    pub(crate) fn cancel_order(&self, run_id: RunId) -> Option<Arc<CancelOrder>> {
        self.shared.lock().runs.get(&run_id).map(|held| Arc::clone(&held.cancel))
    }

    /// Opens the inbox of a run each time that it is called, for a caller without a borrow. A run that is not held gets no messages.
    pub(crate) fn inbox_of(
        &self,
        run_id: RunId,
        task_id: TaskId,
    ) -> impl Fn() -> Inbox + Send + Sync + use<> + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.open_inbox(run_id, task_id)
    }

    /// The handler was heard of; it may be silent anew from now.
    pub(crate) fn heard_of(&self, run_id: RunId) {
        if let Some(held) = self.shared.lock().runs.get_mut(&run_id) {
            held.renew_until = Moment::after(held.silence);
        }
    }

    /// Saves this update of the run soon, unless the run ends first. Returns at once.
    pub(crate) fn save(&self, run_id: RunId, update: Unsaved) {
        let mut state = self.shared.lock();
        let Some(held) = state.runs.get_mut(&run_id) else { return };
        let save_at = held.add_update(update);
        if save_at < state.sleeps_until {
            // Whoever comes next finds it awake.
            state.sleeps_until = save_at;
            self.shared.waker.wake();
        }
    }

    /// Returns what is not saved yet of a run whose handler has ended. It is kept for so long, for its end to be recorded.
    pub(crate) fn take_unsaved(&self, run_id: RunId, kept_for: Duration) -> Unsaved {
        let mut state = self.shared.lock();
        let give_up = Moment::after(END_WAIT);
        while state.saving == Some(run_id) && !give_up.has_passed() {
            state = self.shared.wait(state, give_up.remaining());
        }
        let Some(held) = state.runs.get_mut(&run_id) else { return Unsaved::default() };
        held.renew_until = Moment::after(kept_for);
        held.take_update()
    }

    /// The run is over, or is somebody else's.
    pub(crate) fn let_go(&self, run_id: RunId) {
        self.shared.lock().runs.remove(&run_id);
    }

    /// Keeps no room for runs that are not held.
    pub(crate) fn shrink(&self) {
        self.shared.lock().runs.shrink_to_fit();
    }

    /// Where a run stands now.
    pub(crate) fn lease_state(&self, run_id: RunId) -> LeaseState {
        self.shared.lease_state(run_id)
    }

    /// Waits a moment for an answer of the database about a run whose lease is over, and returns whether there was one. A process
    /// that was suspended has it soon, one whose database is away does not.
    pub(crate) fn was_answered(&self, run_id: RunId) -> bool {
        let give_up = Moment::after(END_WAIT);
        let mut state = self.shared.lock();
        loop {
            match state.runs.get(&run_id).map(|held| held.lease.lease_state()) {
                Some(LeaseState::Over) if !give_up.has_passed() => {
                    state = self.shared.wait(state, give_up.remaining());
                }
                lease_state => return matches!(lease_state, Some(LeaseState::Lost | LeaseState::Held)),
            }
        }
    }

    /// How long a handler may take to end once its lease is over.
    pub(crate) fn notice(&self) -> Duration {
        self.shared.times.notice()
    }

    /// The runs that are held.
    pub(crate) fn held_runs(&self) -> Vec<RunId> {
        self.shared.lock().runs.keys().copied().collect()
    }

    /// How often the leases were renewed since the last question.
    pub(crate) fn take_renewals(&self) -> u64 {
        self.shared.take_renewals()
    }

    /// What operators have ordered.
    pub(crate) fn orders(&self) -> Orders {
        self.shared.orders.clone()
    }

    /// Where the runner itself stands: whether it still has its slot and may claim.
    pub(crate) fn runner_lease_state(&self) -> LeaseState {
        self.shared.lock().runner.lease_state()
    }
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        let Leases { shared } = &self.leases;
        let mut state = shared.lock();
        state.is_ending = true;
        shared.waker.wake();
        let give_up = Moment::after(END_WAIT);
        while !state.has_ended && !give_up.has_passed() {
            state = shared.wait(state, give_up.remaining());
        }
    }
}
