//! What a worker does beside its runs, in a thread with a connection of its own, so that no run waits for it: once a minute
//! what `create-runs` does besides creating runs, and the programs of hooks.

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

/// A run that has ended, of which a hook may want to know.
struct Ended {
    task_id: TaskId,
    run_id: RunId,
    end: RunEnd,
}

/// Who may be told; ends with what there is to tell when it is dropped.
pub(super) struct Errands {
    sender: Sender<Ended>,
    has_hooks: bool,
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
        let has_hooks = !ctx.announcements.hooks.is_empty();
        let problem = Arc::default();
        let (again, told) = (ctx.reopener(), Arc::clone(&problem));
        let open = move || -> EngineResult<Context> {
            let mut ctx = again()?;
            if let Ok(count) = stop.counter() {
                ctx.store.give_up_when(move || count() >= 1);
            }
            Ok(ctx)
        };
        Builder::new()
            .name("errands".to_owned())
            .spawn_scoped(scope, move || run(&open, &receiver, &told))
            .map_err(|source| EngineError::Os { what: "no thread for errands", source })?;
        Ok(Self { sender, has_hooks, problem })
    }

    /// Tells who wants to know that a run has ended so.
    pub(super) fn tell(&self, outcome: &Outcome) {
        if let Some(claimed) = outcome.claimed.filter(|_| self.has_hooks) {
            let ended = Ended { task_id: claimed.task_id, run_id: claimed.run_id, end: outcome.end.clone() };
            // The thread lives as long as we do.
            let _ = self.sender.send(ended);
        }
    }

    /// Why the program of a hook did not do its work, if so.
    pub(super) fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Until there is nobody left to send. What cannot be done now is tried again with the next look.
fn run(open: &dyn Fn() -> EngineResult<Context>, receiver: &Receiver<Ended>, problem: &Mutex<Option<String>>) {
    let mut ctx: Option<Context> = None;
    let mut look_at = Moment::now();
    loop {
        match receiver.recv_timeout(look_at.remaining()) {
            Ok(Ended { task_id, run_id, end }) => {
                if let Some(ctx) = connected(&mut ctx, open) {
                    start_hook(ctx, task_id, run_id, &end);
                    let mut told = problem.lock().unwrap_or_else(PoisonError::into_inner);
                    *told = ctx.hook_problem.take().or_else(|| told.take());
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                let done = connected(&mut ctx, open).map(look_after);
                fault_point!("work.looked_after");
                if !matches!(done, Some(Ok(_))) {
                    ctx = None;
                }
                look_at = Moment::after(LOOK_AFTER_EVERY);
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn connected<'a>(ctx: &'a mut Option<Context>, open: &dyn Fn() -> EngineResult<Context>) -> Option<&'a mut Context> {
    if ctx.is_none() {
        *ctx = open().ok();
    }
    ctx.as_mut()
}
