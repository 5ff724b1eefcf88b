//! Keeps the leases of this process: a thread and a connection of its own renew them while handlers work, so that neither
//! a long handler nor a busy main thread looks like a dead runner.
//!
//! The thread may hang in a call to the database. Whoever works for a run therefore asks [`LeaseKeeper::standing`] by
//! itself, often enough, and gives up when the lease can no longer be trusted.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::{EngineError, EngineResult};
use crate::domain::ids::{RunId, RunnerId};
use crate::domain::lease::LeaseTimes;
use crate::os::clock::Moment;
use crate::store::{DatabaseUrl, Renewal, RunRef, Store, StoreResult};

/// The longest pause after a renewal that failed.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// How long the end of the thread is waited for; it may hang in a call to a database that does not answer.
const END_WAIT: Duration = Duration::from_secs(2);

/// Where a run, or the runner itself, stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The lease can be trusted.
    Held,
    /// The database said that it is somebody else's.
    Lost,
    /// It was not renewed in time: somebody else may take it any moment now.
    Over,
}

/// Renews until it is dropped.
pub struct LeaseKeeper {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    runner_id: RunnerId,
    times: LeaseTimes,
}

struct State {
    runner: Lease,
    runs: Vec<HeldRun>,
    is_ending: bool,
    has_ended: bool,
}

struct HeldRun {
    run: RunRef,
    lease: Lease,
    /// A run whose handler is silent for longer than its timeout allows, and whose end nobody brings about, is renewed no
    /// more: then anybody may end it.
    renew_until: Moment,
}

#[derive(Clone, Copy)]
struct Lease {
    trusted_until: Moment,
    is_lost: bool,
}

impl Lease {
    fn standing(self) -> Standing {
        match (self.is_lost, self.trusted_until.has_passed()) {
            (true, _) => Standing::Lost,
            (false, true) => Standing::Over,
            (false, false) => Standing::Held,
        }
    }

    fn renew(&mut self, is_ours: bool, trusted_until: Moment) {
        self.is_lost |= !is_ours;
        self.trusted_until = self.trusted_until.max(trusted_until);
    }
}

impl LeaseKeeper {
    /// Begins to keep the lease of a runner that asked to be registered at this moment.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn start(url: &DatabaseUrl, runner_id: RunnerId, times: LeaseTimes, asked_at: Moment) -> EngineResult<Self> {
        let runner = Lease { trusted_until: asked_at.plus(times.trusted_for()), is_lost: false };
        let state = State { runner, runs: Vec::new(), is_ending: false, has_ended: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), runner_id, times });
        let (kept, url) = (Arc::clone(&shared), url.clone());
        thread::Builder::new()
            .name("leases".to_owned())
            .spawn(move || keep(&kept, &url))
            .map_err(|source| EngineError::Os { what: "no thread for the leases", source })?;
        Ok(Self { shared })
    }

    /// Also keeps the lease of this run, which was claimed by a call made at `asked_at`; for as long as its handler is
    /// silent for no longer than `silence`.
    pub fn hold(&self, run: RunRef, asked_at: Moment, silence: Duration) {
        let lease = Lease { trusted_until: asked_at.plus(self.shared.times.trusted_for()), is_lost: false };
        self.shared.lock().runs.push(HeldRun { run, lease, renew_until: Moment::after(silence) });
    }

    /// The handler was heard of; it may be silent for so long from now.
    pub fn heard_of(&self, run_id: RunId, silence: Duration) {
        if let Some(held) = self.shared.lock().runs.iter_mut().find(|held| held.run.id == run_id) {
            held.renew_until = Moment::after(silence);
        }
    }

    /// A write for the run was refused.
    pub fn lose(&self, run_id: RunId) {
        if let Some(held) = self.shared.lock().runs.iter_mut().find(|held| held.run.id == run_id) {
            held.lease.is_lost = true;
        }
    }

    /// The run has ended.
    pub fn let_go(&self, run_id: RunId) {
        self.shared.lock().runs.retain(|held| held.run.id != run_id);
    }

    /// Where a run stands now.
    pub fn standing(&self, run_id: RunId) -> Standing {
        self.shared.standing(run_id)
    }

    /// The same question for somebody without a borrow: whether the run may no longer be worked for.
    pub fn forfeit_of(&self, run_id: RunId) -> impl Fn() -> bool + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.standing(run_id) != Standing::Held
    }

    /// Where the runner itself stands: whether it still has its slot and may claim.
    pub fn runner_standing(&self) -> Standing {
        self.shared.lock().runner.standing()
    }
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_ending = true;
        self.shared.changed.notify_all();
        let give_up = Moment::after(END_WAIT);
        while !state.has_ended && !give_up.has_passed() {
            state = self.shared.wait(state, give_up.remaining());
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, limit: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    fn standing(&self, run_id: RunId) -> Standing {
        let state = self.lock();
        // A run that was let go is nobody's.
        state.runs.iter().find(|held| held.run.id == run_id).map_or(Standing::Lost, |held| held.lease.standing())
    }

    /// Waits until it is time; `None` when the keeper ends.
    fn runs_to_renew(&self, next: Moment) -> Option<Vec<RunRef>> {
        let mut state = self.lock();
        while !state.is_ending && !next.has_passed() {
            state = self.wait(state, next.remaining());
        }
        let is_wanted = |held: &&HeldRun| !held.lease.is_lost && !held.renew_until.has_passed();
        (!state.is_ending).then(|| state.runs.iter().filter(is_wanted).map(|held| held.run.clone()).collect())
    }

    fn note(&self, renewal: &Renewal, asked_for: &[RunRef], asked_at: Moment) {
        let trusted_until = asked_at.plus(self.times.trusted_for());
        let mut state = self.lock();
        state.runner.renew(renewal.is_registered, trusted_until);
        for held in state.runs.iter_mut().filter(|held| asked_for.contains(&held.run)) {
            held.lease.renew(!renewal.lost.contains(&held.run.id), trusted_until);
        }
    }
}

fn keep(shared: &Shared, url: &DatabaseUrl) {
    // Connected when the first renewal is due: most runs are shorter.
    let mut store = None;
    let mut next = Moment::after(shared.times.renewal_pause(random()));
    while let Some(runs) = shared.runs_to_renew(next) {
        let asked_at = Moment::now();
        let pause = shared.times.renewal_pause(random());
        next = match renew(&mut store, url, shared, &runs) {
            Ok(renewal) => {
                shared.note(&renewal, &runs, asked_at);
                Moment::after(pause)
            }
            Err(_) => {
                store = None;
                Moment::after((pause / 4).min(RETRY_PAUSE))
            }
        };
    }
    shared.lock().has_ended = true;
    shared.changed.notify_all();
}

fn renew(store: &mut Option<Store>, url: &DatabaseUrl, shared: &Shared, runs: &[RunRef]) -> StoreResult<Renewal> {
    let store = match store {
        Some(store) => store,
        None => store.insert(Store::connect(url)?),
    };
    store.renew_leases(shared.runner_id, runs, shared.times.lease_secs)
}

fn random() -> u16 {
    let mut bytes = [0_u8; 2];
    // Without randomness the pause is merely not spread.
    let _ = getrandom::fill(&mut bytes);
    u16::from_le_bytes(bytes)
}
