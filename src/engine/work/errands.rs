//! What a worker does beside its runs, in a thread with a connection of its own, so that no run waits for it: once a minute
//! what `create-runs` does besides creating runs, and the programs of hooks.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope};
use std::time::Duration;

use super::super::announce::start_hook;
use super::super::create_runs::look_after;
use super::super::outcomes::Outcome;
use super::super::{Context, EngineError, EngineResult};
use crate::domain::ids::{RunId, TaskId};
use crate::os::clock::Moment;
use crate::os::stop_signals::StopSignals;
use crate::store::RunEnd;

/// Between two times that it looks after everything.
const LOOK_AFTER_EVERY: Duration = Duration::from_secs(60);

/// What opens a context of its own.
type Opener = Box<dyn Fn() -> EngineResult<Context> + Send>;

/// What the thread is told.
enum Errand {
    /// A run has ended, of which a hook may want to know.
    Ended { task_id: TaskId, run_id: RunId, end: Box<RunEnd> },
    /// From now on it goes by another configuration.
    Reconfigured(Opener),
}

/// Who may be told; ends with what there is to tell when it is dropped.
pub(super) struct Errands {
    sender: Sender<Errand>,
    has_hooks: Cell<bool>,
    problem: Arc<Mutex<Option<String>>>,
}

impl Errands {
    /// Once one of these signals has come, nothing is waited for any more.
    pub(super) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        ctx: &Context,
        stop: &'scope StopSignals,
    ) -> EngineResult<Self> {
        let (sender, receiver) = channel();
        let problem = Arc::default();
        let (open, told) = (Box::new(ctx.reopener()), Arc::clone(&problem));
        Builder::new()
            .name("errands".to_owned())
            .spawn_scoped(scope, move || Thread { open, ctx: None, stop }.run(&receiver, &told))
            .map_err(|source| EngineError::Os { what: "no thread for errands", source })?;
        Ok(Self { sender, has_hooks: Cell::new(has_hooks(ctx)), problem })
    }

    /// What is told from now on goes by the configuration that this has.
    pub(super) fn reconfigure(&self, ctx: &Context) {
        self.has_hooks.set(has_hooks(ctx));
        // The thread lives as long as we do.
        let _ = self.sender.send(Errand::Reconfigured(Box::new(ctx.reopener())));
    }

    /// Tells who wants to know that a run has ended so.
    pub(super) fn tell(&self, outcome: &Outcome) {
        if let Some(claimed) = outcome.claimed.filter(|_| self.has_hooks.get()) {
            let ended =
                Errand::Ended { task_id: claimed.task_id, run_id: claimed.run_id, end: Box::new(outcome.end.clone()) };
            // The thread lives as long as we do.
            let _ = self.sender.send(ended);
        }
    }

    /// Why the program of a hook did not do its work, if so.
    pub(super) fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn has_hooks(ctx: &Context) -> bool {
    !ctx.announcements.hooks.is_empty()
}

struct Thread<'a> {
    open: Opener,
    ctx: Option<Context>,
    stop: &'a StopSignals,
}

impl Thread<'_> {
    /// Until there is nobody left to send. What cannot be done now is tried again with the next look.
    fn run(mut self, receiver: &Receiver<Errand>, problem: &Mutex<Option<String>>) {
        let mut look_at = Moment::now();
        loop {
            match receiver.recv_timeout(look_at.remaining()) {
                Ok(Errand::Ended { task_id, run_id, end }) => {
                    if let Some(ctx) = self.connected() {
                        start_hook(ctx, task_id, run_id, &end);
                        let mut told = problem.lock().unwrap_or_else(PoisonError::into_inner);
                        *told = ctx.hook_problem.take().or_else(|| told.take());
                    }
                }
                Ok(Errand::Reconfigured(open)) => (self.open, self.ctx) = (open, None),
                Err(RecvTimeoutError::Timeout) => {
                    let done = self.connected().map(look_after);
                    fault_point!("work.looked_after");
                    if !matches!(done, Some(Ok(_))) {
                        self.ctx = None;
                    }
                    look_at = Moment::after(LOOK_AFTER_EVERY);
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
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
