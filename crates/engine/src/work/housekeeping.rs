//! The housekeeping thread of a worker, with its own connection so that no run waits for it. Once a minute, for all workers of
//! its host, it does what `create-runs` does besides creating runs. It also runs hooks, and notifies waiters of finished tasks.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope};
use std::time::Duration;

use crate::announcing::announce::{start_hook, tell_notices};
use crate::announcing::final_failures::print_final_failures;
use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use crate::outbox::outcomes::{ClaimedIds, Outcome};
use crate::queueing::configured::apply_configured;
use crate::upkeep::create_runs::{look_after, replace_overdue};
use taskqueue_host::clock::Moment;
use taskqueue_process::identities::turn::take_turn;
use taskqueue_process::signals::stop_signals::StopSignals;
use taskqueue_store::RunEnd;

/// The pause between two rounds of housekeeping.
const LOOK_AFTER_EVERY: Duration = Duration::from_secs(60);
/// How often to check whether the next task of a schedule should replace one, if there are such schedules.
const REPLACE_EVERY: Duration = Duration::from_secs(1);
/// The shortest time between two notifications of waiters.
const TELL_EVERY: Duration = Duration::from_millis(10);
/// How often to check for waiters while there are none. A new waiter polls more often at first.
const ASK_WHO_WAITS_EVERY: Duration = Duration::from_millis(100);

/// Opens a separate context.
type Opener = Box<dyn Fn() -> EngineResult<Context> + Send>;

/// A job for the thread.
enum HousekeepingRequest {
    /// A run has ended that may have a hook.
    Hook(Box<(ClaimedIds, RunEnd)>),
    /// Runs have ended whose tasks a waiter may wait for.
    TellOfEnds,
    /// The configuration has changed.
    Reconfigured(Opener),
}

/// The handle of the thread; the thread finishes its jobs and ends when this is dropped.
pub(super) struct Housekeeping {
    sender: Sender<HousekeepingRequest>,
    has_hooks: Cell<bool>,
    /// Whether the first housekeeping has finished.
    has_looked_after: Arc<AtomicBool>,
    /// Whether there are finished tasks to notify of; `None` if the engine sends no notifications.
    finishes_to_notify: Option<Arc<AtomicBool>>,
    problem: Arc<Mutex<Option<String>>>,
}

impl Housekeeping {
    /// Starts the thread. After one of these signals, it waits for nothing any more.
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
            replace_at: None,
            notify_at: None,
            silent_until: now,
        };
        Builder::new()
            .name("housekeeping".to_owned())
            .spawn_scoped(scope, move || runner.run(&receiver))
            .map_err(|source| EngineError::Os { what: "cannot start a thread for housekeeping", source })?;
        Ok(Self { sender, has_hooks: Cell::new(has_hooks(ctx)), has_looked_after, finishes_to_notify, problem })
    }

    /// Switches to the configuration of this context.
    pub(super) fn reconfigure(&self, ctx: &Context) {
        self.has_hooks.set(has_hooks(ctx));
        // The thread lives as long as this handle.
        let _ = self.sender.send(HousekeepingRequest::Reconfigured(Box::new(ctx.reopener())));
    }

    /// Runs the hook for this outcome, if there is one.
    pub(super) fn tell(&self, outcome: &Outcome) {
        if let Some(claimed) = outcome.claimed.filter(|_| self.has_hooks.get()) {
            let _ = self.sender.send(HousekeepingRequest::Hook(Box::new((claimed, outcome.end.clone()))));
        }
    }

    /// Schedules a notification of waiters; one notification covers all tasks that finish until then.
    pub(super) fn notify_finished(&self) {
        let is_first = |to_tell: &&Arc<AtomicBool>| !to_tell.swap(true, Ordering::AcqRel);
        if self.finishes_to_notify.as_ref().filter(is_first).is_some() {
            let _ = self.sender.send(HousekeepingRequest::TellOfEnds);
        }
    }

    /// Returns true once the first housekeeping has finished or failed: then the runs of dead runners are rescued.
    pub(super) fn has_looked_after(&self) -> bool {
        self.has_looked_after.load(Ordering::Acquire)
    }

    /// Returns why the program of a hook failed, if it did.
    pub(super) fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Returns true if this worker should do the housekeeping of its host now. Notices depend on the configuration of each worker.
fn is_our_turn(ctx: &Context) -> bool {
    let Some(spool) = &ctx.spool else { return true };
    // If unknown, do it: twice is better than never.
    let Ok(identity) = ctx.me.identity() else { return true };
    take_turn(&spool.beside("turn"), identity, LOOK_AFTER_EVERY).unwrap_or(true)
}

fn has_hooks(ctx: &Context) -> bool {
    !ctx.announcements.hooks.is_empty()
}

/// The state of the thread. A failed job is retried in the next round.
struct HousekeepingThread<'a> {
    open: Opener,
    ctx: Option<Context>,
    stop: &'a StopSignals,
    problem: Arc<Mutex<Option<String>>>,
    finishes_to_notify: Option<Arc<AtomicBool>>,
    has_looked_after: Arc<AtomicBool>,
    next_check_at: Moment,
    /// When to check for tasks to replace, if there are schedules whose tasks replace each other.
    replace_at: Option<Moment>,
    /// When to notify waiters, if there are finished tasks.
    notify_at: Option<Moment>,
    /// When waiters may be notified next.
    silent_until: Moment,
}

impl HousekeepingThread<'_> {
    /// Runs until all senders are dropped.
    fn run(mut self, receiver: &Receiver<HousekeepingRequest>) {
        loop {
            let until = [self.notify_at, self.replace_at].into_iter().flatten().fold(self.next_check_at, Moment::min);
            match receiver.recv_timeout(until.remaining()) {
                Ok(HousekeepingRequest::Hook(ended)) => self.start_hook(&ended),
                Ok(HousekeepingRequest::TellOfEnds) => self.notify_at = Some(self.silent_until),
                Ok(HousekeepingRequest::Reconfigured(open)) => {
                    (self.open, self.ctx) = (open, None);
                    self.apply_schedules();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.notify_at.is_some_and(Moment::has_passed) {
                self.notify_finished();
            }
            if self.next_check_at.has_passed() {
                self.look_after();
            } else if self.replace_at.is_some_and(Moment::has_passed) {
                self.replace_overdue();
            }
        }
        // At the end, do not open a connection for this.
        if self.notify_at.is_some() && self.ctx.is_some() {
            self.notify_finished();
        }
        // The next worker prints what this one could not.
        if let Some(ctx) = &mut self.ctx {
            let _ = print_final_failures(ctx);
        }
    }

    fn start_hook(&mut self, (claimed, end): &(ClaimedIds, RunEnd)) {
        if let Some(ctx) = self.connected() {
            start_hook(ctx, claimed.task_id, claimed.run_id, end);
            let found = ctx.hook_problem.take();
            let mut told = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
            *told = found.or_else(|| told.take());
        }
    }

    fn notify_finished(&mut self) {
        self.notify_at = None;
        if let Some(to_tell) = &self.finishes_to_notify {
            // Reset before sending, so that a task that finishes meanwhile causes another notification.
            to_tell.store(false, Ordering::Release);
        }
        let told = self.connected().map(|ctx| ctx.store.notify_finished());
        if !matches!(told, Some(Ok(_))) {
            self.ctx = None;
        }
        let has_waiters = matches!(told, Some(Ok(true)));
        self.silent_until = Moment::after(if has_waiters { TELL_EVERY } else { ASK_WHO_WAITS_EVERY });
    }

    /// Applies the schedules of the configuration, which is read again. Each worker does, because each may have another file.
    fn apply_schedules(&mut self) {
        let Some(applied) = self.connected().map(|ctx| apply_configured(ctx, None)) else { return };
        let problem = match &applied {
            Ok(applied) => applied
                .iter()
                .find_map(|schedule| Some(format!("schedule {}: {}", schedule.name, schedule.problem.as_ref()?))),
            Err(error) => Some(format!("the schedules of the configuration could not be applied: {error}")),
        };
        if let Some(problem) = problem {
            *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem);
        }
        if applied.is_err() {
            self.ctx = None;
        }
    }

    fn look_after(&mut self) {
        self.apply_schedules();
        let done = self
            .connected()
            .map(|ctx| if is_our_turn(ctx) { look_after(ctx).map(drop) } else { tell_notices(ctx, true).map(drop) });
        fault_point!("work.looked_after");
        if !matches!(done, Some(Ok(()))) {
            self.ctx = None;
        }
        // Without an answer, it continues as before: an outage must not stop the replacing.
        if let Some(Ok(replaces)) = self.connected().map(|ctx| ctx.store.has_replacing_schedules()) {
            self.replace_at = replaces.then(|| Moment::after(REPLACE_EVERY));
        }
        self.next_check_at = Moment::after(LOOK_AFTER_EVERY);
        self.has_looked_after.store(true, Ordering::Release);
    }

    fn replace_overdue(&mut self) {
        if !matches!(self.connected().map(replace_overdue), Some(Ok(_))) {
            self.ctx = None;
        }
        self.replace_at = Some(Moment::after(REPLACE_EVERY));
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
