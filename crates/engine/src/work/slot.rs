//! A slot of a worker: executes one run after the other, on a thread of its own, which lives as long as the worker: the kernel
//! kills handlers with the thread that started them.
//!
//! A handler in Rust runs on this very thread, so that a short one costs no change of threads. The guard of the slot, a second
//! thread, looks at it now and then. Where the handler does not end, the guard ends the run and is the slot from then on; the
//! first thread is left behind, and ends with its handler.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use super::backlog::Backlog;
use crate::handler::{RunContext, TaskHandler};
use crate::running::execute::{Executed, Work, begin, conclude, no_thread, run_program, rust_run};
use crate::running::handler_finish::HandlerFinish;
use crate::running::in_process::run_at;
use crate::running::live_run::RustRun;
use crate::running::runner_context::{RunPolicy, RunnerContext};
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_host::clock::Moment;
use taskqueue_host::machine::thread_names::name_own_thread;
use taskqueue_process::children::event_socket::EventSocket;
use taskqueue_process::identities::marks::Marks;

/// One slot, for its threads.
pub(super) struct Slot {
    number: usize,
    place: Arc<RunnerContext>,
    backlog: Arc<Backlog>,
    marks: Weak<Marks>,
    guarded: Mutex<Guarded>,
    /// There is something to guard, or nothing more to come.
    changed: Condvar,
}

/// Gives up the slot where its thread panics.
struct Presence<'a>(&'a Backlog);

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lose_slot();
        }
    }
}

/// What the guard of a slot looks at.
#[derive(Default)]
struct Guarded {
    run: Option<InProcess>,
    guard: Guard,
}

/// Where the guard of a slot is.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Guard {
    /// It is started with the first handler in Rust.
    #[default]
    None,
    /// It looks again soon.
    Awake,
    /// It has to be woken.
    Asleep,
    /// It is to end.
    Dismissed,
}

/// A run whose handler works on the thread of the slot. The thread that takes it from there concludes it.
struct InProcess {
    run: ClaimedRun,
    policy: Arc<RunPolicy>,
    rust: RustRun<'static>,
    began: Moment,
}

impl Slot {
    /// Starts the thread of a slot.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn start(
        number: usize,
        place: &Arc<RunnerContext>,
        backlog: &Arc<Backlog>,
        marks: Option<&Arc<Marks>>,
    ) -> io::Result<()> {
        let slot = Arc::new(Self {
            number,
            place: Arc::clone(place),
            backlog: Arc::clone(backlog),
            marks: marks.map_or_else(Weak::new, Arc::downgrade),
            guarded: Mutex::default(),
            changed: Condvar::new(),
        });
        thread::Builder::new().name(slot.name()).spawn(move || slot.work()).map(drop)
    }

    fn name(&self) -> String {
        format!("slot-{}", self.number)
    }

    fn lock(&self) -> MutexGuard<'_, Guarded> {
        self.guarded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until no more runs come, or a handler did not end in time.
    fn work(self: Arc<Self>) {
        let _presence = Presence(&self.backlog);
        // Without the socket `taskqueue progress` does not reach us; descriptor 3 still does.
        let socket = EventSocket::bind(self.place.requests.clone()).ok();
        while let Some((run, policy)) = self.backlog.next() {
            fault_point!("slot.run_taken");
            if let Some(marks) = self.marks.upgrade() {
                marks.set(self.number, &run.token);
            }
            fault_point!("slot.marked");
            let began = Moment::now();
            let (live, work) = begin(&self.place, &policy, &run, None);
            match work {
                Work::Program(context) => {
                    let executed = run_program(&self.place, &policy, &run, context, socket.as_ref(), live);
                    self.finish(run, executed, began);
                }
                Work::Rust(handler, context) => {
                    let rust = rust_run(&policy, &run, live);
                    if !self.run_here(InProcess { run, policy, rust, began }, handler.as_ref(), &context) {
                        return;
                    }
                }
            }
        }
        self.lock().guard = Guard::Dismissed;
        self.changed.notify_one();
    }

    /// Runs a handler on this thread. Returns false where the guard has ended its run, and is the slot now.
    fn run_here(self: &Arc<Self>, run: InProcess, handler: &dyn TaskHandler, context: &RunContext) -> bool {
        let (desk, action) = (run.rust.desk(), run.policy.handlers.overrun().action);
        if let Err((run, error)) = self.begin_guarding(run) {
            let finished = no_thread(&run.run, &error);
            self.conclude(*run, &finished);
            return true;
        }
        run_at(&desk, handler, context, action);
        let ours = self.lock().run.take_if(|run| Arc::ptr_eq(&run.rust.desk(), &desk));
        let Some(mut ours) = ours else { return false };
        // The handler has ended: a look says how.
        let Some(finished) = ours.rust.look() else { return false };
        self.conclude(ours, &finished);
        true
    }

    /// Hands a run to the guard, which is started for the first one.
    fn begin_guarding(self: &Arc<Self>, run: InProcess) -> Result<(), (Box<InProcess>, io::Error)> {
        let mut guarded = self.lock();
        if guarded.guard == Guard::None {
            let slot = Arc::clone(self);
            let thread = thread::Builder::new().name(format!("guard-{}", self.number));
            if let Err(error) = thread.spawn(move || slot.watch()) {
                return Err((Box::new(run), error));
            }
        }
        guarded.run = Some(run);
        if std::mem::replace(&mut guarded.guard, Guard::Awake) == Guard::Asleep {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Watches the handlers of the slot, until one of them does not end.
    fn watch(self: Arc<Self>) {
        let mut guarded = self.lock();
        while guarded.guard != Guard::Dismissed {
            let Some(run) = &mut guarded.run else {
                guarded.guard = Guard::Asleep;
                guarded = self.changed.wait(guarded).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let (finished, wait) = (run.rust.look(), run.rust.next_look().remaining());
            if let Some((finished, run)) = finished.and_then(|finished| Some((finished, guarded.run.take()?))) {
                guarded.guard = Guard::None;
                drop(guarded);
                self.conclude(run, &finished);
                name_own_thread(&self.name());
                return self.work();
            }
            guarded = self.changed.wait_timeout(guarded, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn conclude(&self, run: InProcess, finished: &HandlerFinish) {
        let InProcess { run, policy, rust, began } = run;
        let executed = conclude(&self.place, &policy, &run, rust.into_live(), finished);
        self.finish(run, executed, began);
    }

    fn finish(&self, run: ClaimedRun, executed: Executed, began: Moment) {
        self.backlog.finish(&self.place.database, run, executed, began.elapsed());
    }
}
