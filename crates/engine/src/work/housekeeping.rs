//! What a worker does beside its runs, in a thread with a connection of its own, so that no run waits for it: once a minute,
//! for all workers of its host, what `create-runs` does besides creating runs; the programs of hooks; and to tell those who wait
//! for the end of a task that some have ended.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope};
use std::time::Duration;

use crate::outbox::outcomes::Outcome;
use crate::upkeep::announce::{start_hook, tell_notices};
use crate::upkeep::create_runs::look_after;
use crate::upkeep::final_failures::print_final_failures;
use crate::{Context, EngineError, EngineResult};
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_host::clock::Moment;
use taskqueue_process::identities::turn::take_turn;
use taskqueue_process::signals::stop_signals::StopSignals;
use taskqueue_store::RunEnd;

/// Between two times that it looks after everything.
const LOOK_AFTER_EVERY: Duration = Duration::from_secs(60);
/// Between two times that those who wait for ends are told of them.
const TELL_EVERY: Duration = Duration::from_millis(10);
/// Between two questions whether anybody waits, while nobody does. Who has just begun to wait asks more often by itself.
const ASK_WHO_WAITS_EVERY: Duration = Duration::from_millis(100);

/// What opens a context of its own.
type Opener = Box<dyn Fn() -> EngineResult<Context> + Send>;

/// Something to be done.
enum HousekeepingRequest {
    /// A run has ended, of which a hook may want to know.
    Hook(Box<Ended>),
    /// Runs have ended, of which somebody may want to know who waits for one.
    TellOfEnds,
    /// From now on it goes by another configuration.
    Reconfigured(Opener),
}

struct Ended {
    task_id: TaskId,
    run_id: RunId,
    end: RunEnd,
}

/// Who may be told; ends with what there is to tell when it is dropped.
pub(super) struct Housekeeping {
    sender: Sender<HousekeepingRequest>,
    has_hooks: Cell<bool>,
    /// Whether the first housekeeping has finished.
    has_looked_after: Arc<AtomicBool>,
    /// Whether there are ends to tell of; `None` where nobody is told.
    finishes_to_notify: Option<Arc<AtomicBool>>,
    problem: Arc<Mutex<Option<String>>>,
}

impl Housekeeping {
    /// Once one of these signals has come, nothing is waited for any more.
    pub(super) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        ctx: &Context,
        stop: &'scope StopSignals,
    ) -> EngineResult<Self> {
        let (sender, receiver) = channel();
        let finishes_to_notify = ctx.store.supports_finish_notifications().then(Arc::<AtomicBool>::default);
        let problem = Arc::default();
        let has_looked_after = Arc::<AtomicBool>::default();
        let now = Moment::now();
        let runner = HousekeepingThread {
            open: Box::new(ctx.reopener()),
            ctx: None,
            stop,
            problem: Arc::clone(&problem),
            finishes_to_notify: finishes_to_notify.clone(),
            has_looked_after: Arc::clone(&has_looked_after),
            next_check_at: now,
            notify_at: None,
            silent_until: now,
        };
        Builder::new()
            .name("housekeeping".to_owned())
            .spawn_scoped(scope, move || runner.run(&receiver))
            .map_err(|source| EngineError::Os { what: "no thread for housekeeping", source })?;
        Ok(Self { sender, has_hooks: Cell::new(has_hooks(ctx)), has_looked_after, finishes_to_notify, problem })
    }

    /// What is told from now on goes by the configuration that this has.
    pub(super) fn reconfigure(&self, ctx: &Context) {
        self.has_hooks.set(has_hooks(ctx));
        // The thread lives as long as we do.
        let _ = self.sender.send(HousekeepingRequest::Reconfigured(Box::new(ctx.reopener())));
    }

    /// Tells who wants to know that a run has ended so.
    pub(super) fn tell(&self, outcome: &Outcome) {
        if let Some(claimed) = outcome.claimed.filter(|_| self.has_hooks.get()) {
            let ended = Ended { task_id: claimed.task_id, run_id: claimed.run_id, end: outcome.end.clone() };
            let _ = self.sender.send(HousekeepingRequest::Hook(Box::new(ended)));
        }
    }

    /// Tells those who wait for the end of a task that some have ended: soon, and at once of all that have ended by then.
    pub(super) fn notify_finished(&self) {
        let is_first = |to_tell: &&Arc<AtomicBool>| !to_tell.swap(true, Ordering::AcqRel);
        if self.finishes_to_notify.as_ref().filter(is_first).is_some() {
            let _ = self.sender.send(HousekeepingRequest::TellOfEnds);
        }
    }

    /// Returns true once the first housekeeping has finished, also where it failed: the runs of dead runners are rescued then.
    pub(super) fn has_looked_after(&self) -> bool {
        self.has_looked_after.load(Ordering::Acquire)
    }

    /// Why the program of a hook did not do its work, if so.
    pub(super) fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// One worker of a host looks after everything for all of them. Whom to tell of notices each has in a configuration of its own.
fn is_our_turn(ctx: &Context) -> bool {
    let Some(spool) = &ctx.spool else { return true };
    // Where that cannot be told, too much is done rather than nothing.
    let Ok(identity) = ctx.me.identity() else { return true };
    take_turn(&spool.beside("turn"), identity, LOOK_AFTER_EVERY).unwrap_or(true)
}

fn has_hooks(ctx: &Context) -> bool {
    !ctx.announcements.hooks.is_empty()
}

/// The thread. What cannot be done now is tried again with the next look.
struct HousekeepingThread<'a> {
    open: Opener,
    ctx: Option<Context>,
    stop: &'a StopSignals,
    problem: Arc<Mutex<Option<String>>>,
    finishes_to_notify: Option<Arc<AtomicBool>>,
    has_looked_after: Arc<AtomicBool>,
    next_check_at: Moment,
    /// Set while there are ends to tell of.
    notify_at: Option<Moment>,
    /// No ends are told of before.
    silent_until: Moment,
}

impl HousekeepingThread<'_> {
    /// Until there is nobody left to send.
    fn run(mut self, receiver: &Receiver<HousekeepingRequest>) {
        loop {
            let until = self.notify_at.map_or(self.next_check_at, |notify_at| notify_at.min(self.next_check_at));
            match receiver.recv_timeout(until.remaining()) {
                Ok(HousekeepingRequest::Hook(ended)) => self.start_hook(&ended),
                Ok(HousekeepingRequest::TellOfEnds) => self.notify_at = Some(self.silent_until),
                Ok(HousekeepingRequest::Reconfigured(open)) => (self.open, self.ctx) = (open, None),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.notify_at.is_some_and(Moment::has_passed) {
                self.notify_finished();
            }
            if self.next_check_at.has_passed() {
                self.look_after();
            }
        }
        // Who ends does not wait for a connection.
        if self.notify_at.is_some() && self.ctx.is_some() {
            self.notify_finished();
        }
        // The next worker prints what this one could not.
        if let Some(ctx) = &mut self.ctx {
            let _ = print_final_failures(ctx);
        }
    }

    fn start_hook(&mut self, ended: &Ended) {
        if let Some(ctx) = self.connected() {
            start_hook(ctx, ended.task_id, ended.run_id, &ended.end);
            let found = ctx.hook_problem.take();
            let mut told = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
            *told = found.or_else(|| told.take());
        }
    }

    fn notify_finished(&mut self) {
        self.notify_at = None;
        if let Some(to_tell) = &self.finishes_to_notify {
            // Before: what ends from now on is told of once more.
            to_tell.store(false, Ordering::Release);
        }
        let told = self.connected().map(|ctx| ctx.store.notify_finished());
        if !matches!(told, Some(Ok(_))) {
            self.ctx = None;
        }
        let somebody_waits = matches!(told, Some(Ok(true)));
        self.silent_until = Moment::after(if somebody_waits { TELL_EVERY } else { ASK_WHO_WAITS_EVERY });
    }

    fn look_after(&mut self) {
        let done = self
            .connected()
            .map(|ctx| if is_our_turn(ctx) { look_after(ctx).map(drop) } else { tell_notices(ctx, true).map(drop) });
        fault_point!("work.looked_after");
        if !matches!(done, Some(Ok(()))) {
            self.ctx = None;
        }
        self.next_check_at = Moment::after(LOOK_AFTER_EVERY);
        self.has_looked_after.store(true, Ordering::Release);
    }

    fn connected(&mut self) -> Option<&mut Context> {
        if self.ctx.is_none() {
            let mut ctx = (self.open)().ok()?;
            if let Ok(count) = self.stop.counter() {
                ctx.store.give_up_when(move || count() >= 1);
            }
            self.ctx = Some(ctx);
        }
        self.ctx.as_mut()
    }
}
