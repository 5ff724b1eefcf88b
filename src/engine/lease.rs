//! Keeps the leases of this process, saves what its handlers report, looks what operators have ordered and hears which of
//! its runs are cancelled: a thread and a connection of its own, so that neither a long handler nor a busy main thread looks
//! like a dead runner, and a database that is slow or away keeps nobody from watching the handler.
//!
//! The thread may hang in a call to the database. Whoever works for a run therefore asks [`LeaseKeeper::standing`] by
//! itself, often enough, and gives up when the lease can no longer be trusted.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::cancel_order::CancelOrder;
use super::orders::Orders;
use super::unsaved::Unsaved;
use super::{EngineError, EngineResult};
use crate::domain::ids::{RunId, RunnerId};
use crate::domain::lease::LeaseTimes;
use crate::os::clock::Moment;
use crate::os::random::spread;
use crate::os::sockets::LibrarySocket;
use crate::os::waker::Waker;
use crate::store::{DatabaseUrl, Renewal, RunRef, Store, StoreResult};

/// The longest pause after a renewal that failed.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// Between two looks at what operators have ordered.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// How often it is asked which runs are cancelled, also where the engine tells of it: not every request is told.
const ASK_EVERY: Duration = Duration::from_millis(500);
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
    /// Something was done that others wait for.
    changed: Condvar,
    /// There is something to do for the thread.
    waker: Waker,
    runner_id: RunnerId,
    runner_name: String,
    times: LeaseTimes,
    orders: Orders,
}

struct State {
    runner: Lease,
    runs: Vec<HeldRun>,
    /// The run whose news are being written at this moment.
    saving: Option<RunId>,
    /// No news are written before, after an attempt that failed.
    save_after: Moment,
    is_ending: bool,
    has_ended: bool,
}

/// What the thread does next.
enum Work {
    Renew(Vec<RunRef>),
    Save(RunRef, Unsaved),
    Look,
    /// Which of these are cancelled.
    Ask(Vec<RunId>),
    /// Something has come to the socket.
    Listen,
    End,
}

struct HeldRun {
    run: RunRef,
    class: String,
    lease: Lease,
    /// A run whose handler is silent for longer than its timeout allows, and whose end nobody brings about, is renewed no
    /// more: then anybody may end it.
    renew_until: Moment,
    unsaved: Unsaved,
    cancel: Arc<CancelOrder>,
}

/// When the thread does what, if nothing else happens.
struct Plan {
    renew_at: Moment,
    ask_at: Moment,
    look_at: Moment,
}

#[derive(Clone, Copy)]
struct Lease {
    trusted_until: Moment,
    is_lost: bool,
}

impl HeldRun {
    /// Whether it may be cancelled without our knowing it.
    fn is_in_question(&self) -> bool {
        !self.lease.is_lost && self.cancel.reason().is_none()
    }
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
    pub fn start(
        url: &DatabaseUrl,
        runner_id: RunnerId,
        runner_name: &str,
        times: LeaseTimes,
        asked_at: Moment,
    ) -> EngineResult<Self> {
        let runner = Lease { trusted_until: asked_at.plus(times.trusted_for()), is_lost: false };
        let state = State {
            runner,
            runs: Vec::new(),
            saving: None,
            save_after: Moment::now(),
            is_ending: false,
            has_ended: false,
        };
        let waker = Waker::new().map_err(|source| EngineError::Os { what: "no descriptor for the leases", source })?;
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            waker,
            runner_id,
            runner_name: runner_name.to_owned(),
            times,
            orders: Orders::default(),
        });
        let (kept, url) = (Arc::clone(&shared), url.clone());
        thread::Builder::new()
            .name("leases".to_owned())
            .spawn(move || keep(&kept, &url))
            .map_err(|source| EngineError::Os { what: "no thread for the leases", source })?;
        Ok(Self { shared })
    }

    /// Also keeps the lease of this run of this class, which was claimed by a call made at `asked_at`; for as long as its handler is
    /// silent for no longer than `silence`.
    pub fn hold(&self, run: RunRef, class: &str, asked_at: Moment, silence: Duration) {
        let lease = Lease { trusted_until: asked_at.plus(self.shared.times.trusted_for()), is_lost: false };
        self.shared.lock().runs.push(HeldRun {
            run,
            class: class.to_owned(),
            lease,
            renew_until: Moment::after(silence),
            unsaved: Unsaved::default(),
            cancel: Arc::new(CancelOrder::new()),
        });
        self.shared.waker.wake();
    }

    /// What says that a run is to end; `None` for one that is not held.
    pub(super) fn cancel_order(&self, run_id: RunId) -> Option<Arc<CancelOrder>> {
        let state = self.shared.lock();
        state.runs.iter().find(|held| held.run.id == run_id).map(|held| Arc::clone(&held.cancel))
    }

    /// The handler was heard of; it may be silent for so long from now.
    pub fn heard_of(&self, run_id: RunId, silence: Duration) {
        if let Some(held) = self.shared.lock().runs.iter_mut().find(|held| held.run.id == run_id) {
            held.renew_until = Moment::after(silence);
        }
    }

    /// News of the run, to be saved soon. Returns at once.
    pub fn save(&self, run_id: RunId, news: Unsaved) {
        if let Some(held) = self.shared.lock().runs.iter_mut().find(|held| held.run.id == run_id) {
            held.unsaved.add(news);
            self.shared.waker.wake();
        }
    }

    /// Returns what is not saved yet of a run whose handler has ended. It is kept for so long, for its end to be recorded.
    pub fn take_unsaved(&self, run_id: RunId, kept_for: Duration) -> Unsaved {
        let mut state = self.shared.lock();
        let give_up = Moment::after(END_WAIT);
        while state.saving == Some(run_id) && !give_up.has_passed() {
            state = self.shared.wait(state, give_up.remaining());
        }
        let Some(held) = state.runs.iter_mut().find(|held| held.run.id == run_id) else { return Unsaved::default() };
        held.renew_until = Moment::after(kept_for);
        std::mem::take(&mut held.unsaved)
    }

    /// The run is over, or is somebody else's.
    pub fn let_go(&self, run_id: RunId) {
        self.shared.lock().runs.retain(|held| held.run.id != run_id);
    }

    /// Where a run stands now.
    pub fn standing(&self, run_id: RunId) -> Standing {
        self.shared.standing(run_id)
    }

    /// Whether the lease of a run is over, for somebody without a borrow.
    pub fn over_of(&self, run_id: RunId) -> impl Fn() -> bool + Send + use<> + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.standing(run_id) == Standing::Over
    }

    /// What operators have ordered.
    pub fn orders(&self) -> Orders {
        self.shared.orders.clone()
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
        self.shared.waker.wake();
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

    /// Waits for something to do, also at the socket. Renewals come first: a run whose lease is lost needs no news.
    fn next_work(&self, plan: &Plan, socket: Option<&LibrarySocket>) -> Work {
        let renew_at = plan.renew_at;
        let mut has_waited = false;
        loop {
            let mut state = self.lock();
            if state.is_ending {
                return Work::End;
            }
            if renew_at.has_passed() {
                let is_wanted = |held: &&HeldRun| !held.lease.is_lost && !held.renew_until.has_passed();
                return Work::Renew(state.runs.iter().filter(is_wanted).map(|held| held.run.clone()).collect());
            }
            if plan.look_at.has_passed() {
                return Work::Look;
            }
            let mut until = renew_at.min(plan.look_at);
            let in_question: Vec<RunId> =
                state.runs.iter().filter(|held| held.is_in_question()).map(|held| held.run.id).collect();
            if !in_question.is_empty() {
                if plan.ask_at.has_passed() {
                    return Work::Ask(in_question);
                }
                until = until.min(plan.ask_at);
            }
            let has_news = state.runs.iter().position(|held| !held.unsaved.is_empty() && !held.lease.is_lost);
            if let Some(at) = has_news {
                if state.save_after.has_passed() {
                    let held = &mut state.runs[at];
                    let work = (held.run.clone(), std::mem::take(&mut held.unsaved));
                    state.saving = Some(work.0.id);
                    return Work::Save(work.0, work.1);
                }
                until = until.min(state.save_after);
            }
            if has_waited && socket.is_some() {
                return Work::Listen;
            }
            drop(state);
            self.waker.wait(socket, until.remaining());
            has_waited = true;
        }
    }

    fn cancel(&self, requests: Vec<(RunId, String)>) {
        let state = self.lock();
        for (run_id, reason) in requests {
            if let Some(held) = state.runs.iter().find(|held| held.run.id == run_id) {
                held.cancel.give(reason);
            }
        }
    }

    fn saved(&self, run: &RunRef, news: Unsaved, saved: &StoreResult<bool>) {
        let mut state = self.lock();
        state.saving = None;
        if saved.is_err() {
            state.save_after = Moment::after(RETRY_PAUSE);
        }
        if let Some(held) = state.runs.iter_mut().find(|held| held.run == *run) {
            held.lease.is_lost |= matches!(saved, Ok(false));
            // What a lost run reported is kept for the event of its late result.
            if !matches!(saved, Ok(true)) {
                let newer = std::mem::replace(&mut held.unsaved, news);
                held.unsaved.add(newer);
            }
        }
        self.changed.notify_all();
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
    fault_point!("lease.thread_started");
    let mut store: Option<Store> = None;
    let mut plan = Plan {
        renew_at: Moment::after(shared.times.renewal_pause(spread())),
        ask_at: Moment::after(ASK_EVERY),
        look_at: Moment::after(LOOK_PAUSE),
    };
    loop {
        let is_well = match shared.next_work(&plan, store.as_ref().and_then(Store::listening_socket)) {
            Work::End => break,
            Work::Listen => true,
            Work::Look => {
                let looked = connected(&mut store, url).and_then(Store::list_pauses);
                plan.look_at = Moment::after(if looked.is_ok() { LOOK_PAUSE } else { RETRY_PAUSE });
                if let Ok(pauses) = &looked {
                    let classes: Vec<String> = shared.lock().runs.iter().map(|held| held.class.clone()).collect();
                    shared.orders.note(pauses, &shared.runner_name, &classes);
                }
                fault_point!("lease.looked");
                looked.is_ok()
            }
            Work::Ask(runs) => {
                let asked = connected(&mut store, url).and_then(|store| store.list_cancel_requests(&runs));
                plan.ask_at = Moment::after(if asked.is_ok() { ASK_EVERY } else { RETRY_PAUSE });
                let is_well = asked.is_ok();
                fault_point!("lease.cancel_heard");
                shared.cancel(asked.unwrap_or_default());
                is_well
            }
            Work::Save(run, news) => {
                let saved = connected(&mut store, url).and_then(|store| news.save(store, &run));
                let is_well = saved.is_ok();
                fault_point!("lease.news_saved");
                shared.saved(&run, news, &saved);
                is_well
            }
            Work::Renew(runs) => {
                let asked_at = Moment::now();
                let lease_secs = shared.times.lease_secs;
                let renewed = connected(&mut store, url)
                    .and_then(|store| store.renew_leases(shared.runner_id, &runs, lease_secs));
                let pause = shared.times.renewal_pause(spread());
                plan.renew_at = Moment::after(if renewed.is_ok() { pause } else { (pause / 4).min(RETRY_PAUSE) });
                let is_well = renewed.is_ok();
                fault_point!("lease.renewed");
                if let Ok(renewal) = renewed {
                    shared.note(&renewal, &runs, asked_at);
                }
                is_well
            }
        };
        if !is_well {
            store = None;
        }
        // Also what came while something else was asked: then nothing comes to the socket any more.
        match store.as_mut().map(Store::was_told_of_cancel) {
            Some(Ok(true)) => plan.ask_at = Moment::now(),
            Some(Err(_)) => store = None,
            Some(Ok(false)) | None => {}
        }
    }
    shared.lock().has_ended = true;
    shared.changed.notify_all();
}

fn connected<'a>(store: &'a mut Option<Store>, url: &DatabaseUrl) -> StoreResult<&'a mut Store> {
    match store {
        Some(store) => Ok(store),
        None => Ok(store.insert(Store::connect_listening(url)?)),
    }
}
