//! The state shared by the lease thread and the threads it works for: the held runs, their leases, and their unsaved updates.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::open_inbox::OpenInbox;
use crate::error::{EngineError, EngineResult};
use crate::me::Me;
use crate::running::cancel_order::CancelOrder;
use crate::running::runner::orders::Orders;
use crate::running::unsaved::Unsaved;
use taskqueue_domain::limits::lease::LeaseTimes;
use taskqueue_domain::task::ids::{RunId, RunnerId};
use taskqueue_host::clock::Moment;
use taskqueue_host::net::sockets::LibrarySocket;
use taskqueue_host::net::waker::Waker;
use taskqueue_store::{Origin, Renewal, RunRef, RunRequest, StoreResult};

/// The longest pause after a failed renewal.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// How long the first update of a run is delayed before it is saved. Most runs end sooner, and their end includes it.
const SAVE_AFTER: Duration = Duration::from_millis(100);
/// The same while its output is being read.
const SAVE_FOLLOWED_AFTER: Duration = Duration::from_millis(20);
/// How long after its claim nothing is asked about a run, unless its handler listens or a notification comes. Most runs end
/// sooner, and a worker can hold thousands.
const ASK_AFTER: Duration = Duration::from_secs(1);

/// The state of the lease of a run, or of the runner itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseState {
    /// The lease can be trusted.
    Held,
    /// The database reported that another process has it.
    Lost,
    /// It was not renewed in time: another process may take it at any moment.
    Over,
}

/// The leases of this process, shared by all threads that execute its runs.
pub(crate) struct Leases {
    state: Mutex<LeasesState>,
    /// Signals a change that other threads wait for.
    changed: Condvar,
    /// Wakes the thread when there is work for it.
    pub(crate) waker: Waker,
    pub(crate) runner_id: RunnerId,
    pub(crate) runner_name: String,
    pub(crate) origin: Origin,
    pub(crate) times: LeaseTimes,
    pub(crate) orders: Orders,
    /// How often the leases were renewed since the last read.
    renewals: AtomicU64,
}

pub(crate) struct LeasesState {
    pub(crate) runner: Lease,
    pub(crate) runs: HashMap<RunId, HeldLease>,
    /// The run whose update is being written.
    pub(crate) saving: Option<RunId>,
    /// After a failed write, nothing is written before this moment.
    save_after: Moment,
    /// When the thread wakes up unless it is woken earlier.
    pub(crate) sleeps_until: Moment,
    /// Whether a handler has just started to listen, so that a query is due now.
    pub(crate) asks_now: bool,
    pub(crate) is_ending: bool,
    pub(crate) has_ended: bool,
}

/// The next work of the thread.
pub(crate) enum LeaseWork {
    Renew {
        due: Vec<RunRef>,
        /// Claimed recently, so that the lease needs no renewal yet.
        fresh: Vec<RunRef>,
    },
    Save(RunRef, Unsaved),
    Look,
    /// Query what is requested of these runs, and fetch new messages.
    Ask(Vec<RunId>),
    /// Read a notification from the socket.
    Listen,
    End,
}

pub(crate) struct HeldLease {
    run: RunRef,
    class: String,
    pub(crate) lease: Lease,
    /// After this moment the lease is not renewed: the handler is silent for longer than its timeout allows, and its runner
    /// does not end it. Then any process may rescue the run.
    pub(crate) renew_until: Moment,
    pub(crate) silence: Duration,
    /// Before this moment, nothing is asked about it.
    pub(crate) ask_from: Moment,
    unsaved: Unsaved,
    /// Set while there are unsaved updates.
    save_at: Option<Moment>,
    pub(crate) cancel: Arc<CancelOrder>,
    /// Whether its output is being read.
    pub(crate) is_followed: bool,
    /// Set once its handler listens.
    pub(crate) inbox: Option<OpenInbox>,
}

/// When the thread does its regular work.
pub(crate) struct RenewalPlan {
    pub(crate) renew_at: Moment,
    pub(crate) ask_at: Moment,
    pub(crate) next_check_at: Moment,
}

#[derive(Clone, Copy)]
pub(crate) struct Lease {
    pub(crate) trusted_until: Moment,
    pub(crate) is_lost: bool,
}

impl LeasesState {
    fn in_question(&self) -> impl Iterator<Item = &HeldLease> {
        self.runs.values().filter(|held| held.is_in_question())
    }
}

impl HeldLease {
    pub(crate) fn new(run: RunRef, class: &str, trusted_until: Moment, silence: Duration) -> Self {
        Self {
            run,
            class: class.to_owned(),
            lease: Lease { trusted_until, is_lost: false },
            renew_until: Moment::after(silence),
            silence,
            ask_from: Moment::after(ASK_AFTER),
            unsaved: Unsaved::default(),
            save_at: None,
            cancel: Arc::new(CancelOrder::new()),
            is_followed: false,
            inbox: None,
        }
    }

    /// Returns true if the run may have been cancelled without this process knowing.
    fn is_in_question(&self) -> bool {
        !self.lease.is_lost && self.cancel.reason().is_none()
    }

    /// Adds an update. Returns when it must be saved.
    pub(crate) fn add_update(&mut self, update: Unsaved) -> Moment {
        self.unsaved.add(update);
        let wait = if self.is_followed { SAVE_FOLLOWED_AFTER } else { SAVE_AFTER };
        *self.save_at.get_or_insert_with(|| Moment::after(wait))
    }

    pub(crate) fn take_update(&mut self) -> Unsaved {
        self.save_at = None;
        std::mem::take(&mut self.unsaved)
    }
}

impl Lease {
    pub(crate) fn lease_state(self) -> LeaseState {
        match (self.is_lost, self.trusted_until.has_passed()) {
            (true, _) => LeaseState::Lost,
            (false, true) => LeaseState::Over,
            (false, false) => LeaseState::Held,
        }
    }

    pub(crate) fn renew(&mut self, is_ours: bool, trusted_until: Moment) {
        self.is_lost |= !is_ours;
        self.trusted_until = self.trusted_until.max(trusted_until);
    }
}

impl Leases {
    pub(crate) fn new(runner_id: RunnerId, me: &Me, times: LeaseTimes, asked_at: Moment) -> EngineResult<Self> {
        let waker = Waker::new()
            .map_err(|source| EngineError::Os { what: "cannot open a descriptor for the leases", source })?;
        let state = LeasesState {
            runner: Lease { trusted_until: asked_at.plus(times.trusted_for()), is_lost: false },
            runs: HashMap::new(),
            saving: None,
            save_after: Moment::now(),
            sleeps_until: Moment::now(),
            asks_now: false,
            is_ending: false,
            has_ended: false,
        };
        Ok(Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            waker,
            runner_id,
            runner_name: me.runner_name.clone(),
            origin: Origin { actor: me.user.clone(), host: me.host.clone() },
            times,
            orders: Orders::default(),
            renewals: AtomicU64::new(0),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LeasesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wait<'a>(&self, state: MutexGuard<'a, LeasesState>, limit: Duration) -> MutexGuard<'a, LeasesState> {
        self.changed.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Returns the state of the lease of a run.
    pub(crate) fn lease_state(&self, run_id: RunId) -> LeaseState {
        let state = self.lock();
        // A run that is no longer held counts as lost.
        state.runs.get(&run_id).map_or(LeaseState::Lost, |held| held.lease.lease_state())
    }

    /// Waits for work, also at the socket. Renewals come first: updates of a run whose lease is lost are useless.
    pub(crate) fn next_work(&self, plan: &RenewalPlan, socket: Option<&LibrarySocket>) -> LeaseWork {
        let renew_at = plan.renew_at;
        let mut has_waited = false;
        loop {
            let mut state = self.lock();
            if state.is_ending {
                return LeaseWork::End;
            }
            if renew_at.has_passed() {
                let is_due = |held: &&HeldLease| self.times.is_worth_renewal(held.lease.trusted_until.remaining());
                let is_wanted = |held: &&HeldLease| !held.lease.is_lost && !held.renew_until.has_passed();
                let (due, fresh): (Vec<_>, Vec<_>) = state.runs.values().filter(is_wanted).partition(is_due);
                let references = |runs: Vec<&HeldLease>| runs.into_iter().map(|held| held.run.clone()).collect();
                return LeaseWork::Renew { due: references(due), fresh: references(fresh) };
            }
            if plan.next_check_at.has_passed() {
                return LeaseWork::Look;
            }
            let mut until = renew_at.min(plan.next_check_at);
            if let Some(ask_from) = state.in_question().map(|held| held.ask_from).min() {
                let ask_at = plan.ask_at.max(ask_from);
                if std::mem::take(&mut state.asks_now) || ask_at.has_passed() {
                    let asked = state.in_question().filter(|held| held.ask_from.has_passed());
                    return LeaseWork::Ask(asked.map(|held| held.run.id).collect());
                }
                until = until.min(ask_at);
            }
            let unsaved = state.runs.values().filter(|held| !held.lease.is_lost);
            let first = unsaved.filter_map(|held| Some((held.save_at?, held.run.id))).min();
            if let Some((save_at, run_id)) = first {
                let save_at = save_at.max(state.save_after);
                if save_at.has_passed()
                    && let Some(held) = state.runs.get_mut(&run_id)
                {
                    let work = LeaseWork::Save(held.run.clone(), held.take_update());
                    state.saving = Some(run_id);
                    return work;
                }
                until = until.min(save_at);
            }
            if has_waited && socket.is_some() {
                return LeaseWork::Listen;
            }
            state.sleeps_until = until;
            drop(state);
            self.waker.wait(socket.map(LibrarySocket::as_fd), until.remaining());
            has_waited = true;
        }
    }

    /// Includes all held runs in the next query: something is requested of a run, which can be a new one.
    pub(crate) fn ask_about_all(&self) {
        let now = Moment::now();
        self.lock().runs.values_mut().for_each(|held| held.ask_from = held.ask_from.min(now));
    }

    /// Does what is requested of these runs.
    pub(crate) fn hear(&self, asked: &[RunId], requests: Vec<RunRequest>) {
        let mut state = self.lock();
        for run_id in asked {
            if let Some(held) = state.runs.get_mut(run_id) {
                held.is_followed = false;
            }
        }
        for RunRequest { run_id, cancel_reason, is_followed } in requests {
            let Some(held) = state.runs.get_mut(&run_id) else { continue };
            // Of a cancelled run nothing more is asked, so nothing would end this.
            held.is_followed = is_followed && cancel_reason.is_none();
            let Some(reason) = cancel_reason else { continue };
            held.cancel.give(reason);
            if let Some(open) = &held.inbox {
                open.inbox.close();
            }
        }
    }

    pub(crate) fn saved(&self, run: &RunRef, update: Unsaved, saved: &StoreResult<bool>) {
        let mut state = self.lock();
        state.saving = None;
        if saved.is_err() {
            state.save_after = Moment::after(RETRY_PAUSE);
        }
        if let Some(held) = state.runs.get_mut(&run.id).filter(|held| held.run == *run) {
            held.lease.is_lost |= matches!(saved, Ok(false));
            // The reports of a lost run are kept for the event about its late result.
            if !matches!(saved, Ok(true)) {
                let newer = held.take_update();
                held.add_update(update);
                held.unsaved.add(newer);
            }
        }
        self.changed.notify_all();
    }

    pub(crate) fn note(&self, renewal: &Renewal, asked_for: &[RunRef], asked_at: Moment) {
        self.renewals.fetch_add(1, Ordering::Relaxed);
        let trusted_until = asked_at.plus(self.times.trusted_for());
        let mut state = self.lock();
        state.runner.renew(renewal.is_registered, trusted_until);
        for run in asked_for {
            let Some(held) = state.runs.get_mut(&run.id).filter(|held| held.run == *run) else { continue };
            held.lease.renew(!renewal.lost.contains(&held.run.id), trusted_until);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Returns how often the leases were renewed since the last call.
    pub(crate) fn take_renewals(&self) -> u64 {
        self.renewals.swap(0, Ordering::Relaxed)
    }

    /// Returns the classes of the held runs.
    pub(crate) fn classes(&self) -> Vec<String> {
        let mut classes: Vec<String> = self.lock().runs.values().map(|held| held.class.clone()).collect();
        classes.sort_unstable();
        classes.dedup();
        classes
    }

    /// Marks the thread as ended.
    pub(crate) fn end(&self) {
        self.lock().has_ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use taskqueue_domain::task::ids::TaskId;

    use super::super::Holding;
    use super::*;

    #[test]
    fn a_new_run_is_asked_about_once_it_listens_or_a_notification_comes() {
        let (times, now) = (LeaseTimes { lease_secs: 120, renewal_secs: 30, margin_secs: 10 }, Moment::now());
        let leases = Leases::new(RunnerId(1), &Me::new(), times, now).unwrap();
        let later = Moment::after(Duration::from_secs(3600));
        for id in [7, 8] {
            let run = RunRef { id: RunId(id), token: format!("token-{id}") };
            leases.hold(now, [Holding { run, class: "work", silence: Duration::from_secs(60) }]);
            let ask_from = std::mem::replace(&mut leases.lock().runs.get_mut(&RunId(id)).unwrap().ask_from, later);
            assert!(ask_from >= now.plus(ASK_AFTER));
        }
        let plan = RenewalPlan { renew_at: later, ask_at: now, next_check_at: Moment::after(Duration::from_millis(1)) };
        assert!(matches!(leases.next_work(&plan, None), LeaseWork::Look));
        leases.open_inbox(RunId(7), TaskId(3));
        let plan = RenewalPlan { next_check_at: later, ..plan };
        assert!(matches!(leases.next_work(&plan, None), LeaseWork::Ask(runs) if runs == [RunId(7)]));
        leases.ask_about_all();
        assert!(matches!(leases.next_work(&plan, None), LeaseWork::Ask(runs) if runs.len() == 2));
    }
}
