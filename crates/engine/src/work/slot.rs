//! A slot of a worker: executes one run after the other in its own thread. The thread lives as long as the worker, because the
//! kernel kills handlers together with the thread that started them.
//!
//! A Rust handler runs in this thread, so that a short one needs no thread switch. A second thread, the guard, checks it from
//! time to time. If the handler does not end, the guard ends the run and takes over the slot; the first thread is left behind
//! and exits after its handler.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use super::backlog::Backlog;
use crate::handler::{RunContext, TaskHandler};
use crate::running::execute::{Executed, RunWork, begin, conclude, no_thread, run_program, rust_run};
use crate::running::handler_finish::HandlerFinish;
use crate::running::in_process::run_at;
use crate::running::live_run::RustRun;
use crate::running::runner::runner_context::{RunPolicy, RunnerContext};
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_host::clock::Moment;
use taskqueue_host::machine::thread_names::name_own_thread;
use taskqueue_process::children::event_socket::EventSocket;
use taskqueue_process::identities::marks::Marks;

/// One slot, shared by its threads.
pub(super) struct Slot {
    number: usize,
    place: Arc<RunnerContext>,
    backlog: Arc<Backlog>,
    marks: Weak<Marks>,
    guarded: Mutex<Guarded>,
    /// Signals a run to guard, or that no more will come.
    changed: Condvar,
}

/// Gives up the slot if its thread panics.
struct Presence<'a>(&'a Backlog);

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lose_slot();
        }
    }
}

/// What the guard of a slot checks.
#[derive(Default)]
struct Guarded {
    run: Option<InProcess>,
    guard: Guard,
}

/// The state of the guard of a slot.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Guard {
    /// Not started; the first Rust handler starts it.
    #[default]
    None,
    /// It will check again soon.
    Awake,
    /// It must be woken.
    Asleep,
    /// It must exit.
    Dismissed,
}

/// A run whose handler runs in the thread of the slot. The thread that takes it from here concludes it.
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
    /// Returns an error if no thread can be started.
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

    /// Executes runs until no more come or a handler did not end in time.
    fn work(self: Arc<Self>) {
        let _presence = Presence(&self.backlog);
        // Without the socket, `taskqueue report progress` fails, but descriptor 3 still works.
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
                RunWork::Program(context) => {
                    let executed = run_program(&policy, &run, context, socket.as_ref(), live);
                    self.finish(run, executed, began);
                }
                RunWork::Rust(handler, context) => {
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

    /// Runs a handler in this thread. Returns false if the guard has ended its run and taken over the slot.
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
        // The handler has ended, so a check returns how.
        let Some(finished) = ours.rust.look() else { return false };
        self.conclude(ours, &finished);
        true
    }

    /// Passes a run to the guard, which is started for the first one.
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

    /// Watches the handlers of the slot until one of them does not end.
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
        let executed = conclude(&policy, &run, rust.into_live(), finished);
        self.finish(run, executed, began);
    }

    fn finish(&self, run: ClaimedRun, executed: Executed, began: Moment) {
        self.backlog.finish(&self.place.database, run, executed, began.elapsed());
    }
}
