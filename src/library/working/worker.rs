//! [`Worker`]: a runner with many slots inside a program, for classes that Rust types handle.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use crate::library::error::Error;
use crate::library::task_queue::TaskQueue;
use crate::library::working::worker_event::{EventForwarder, OnEvent, WorkerEvent};
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_engine::config::{Environment, default_spool_path};
use taskqueue_engine::handler::registry::HandlerRegistry;
use taskqueue_engine::handler::{OverrunAction, TaskHandler};
use taskqueue_engine::running::process_run::ProcessReport;
use taskqueue_engine::work::{WorkOptions, work};
use taskqueue_engine::{ClassesInUse, Context, DatabaseUrl, Handlers, StopHandle, StopSignals};

/// A worker inside a program: it creates the runs of due tasks, claims runs of its classes, executes them in its own threads
/// and records their outcomes, until it is asked to stop. For others it is a runner like `taskqueue work`. Both may use one
/// store at the same time, and a program may have several workers.
///
/// ```
/// use std::thread;
/// use std::time::Duration;
/// use taskqueue::{NewTask, TaskQueue, Worker, typed};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let queue = TaskQueue::connect(&directory.path().join("tasks.db").display().to_string())?;
/// let worker = Worker::new(&queue)?.class("sum", typed(|numbers: Vec<i64>, _run| Ok(numbers.iter().sum::<i64>()))).slots(2);
/// # let worker = worker.spool(directory.path().join("spool"));
/// let stop = worker.stop_handle();
/// let working = thread::spawn(|| worker.run());
///
/// let queued = queue.queue(NewTask::new("sum").data(&[1, 2, 3])?)?;
/// let ended = queue.wait(queued.id, Duration::from_secs(30))?.ok_or("it takes too long")?;
/// assert_eq!(ended.run.and_then(|run| run.results_as().transpose()).transpose()?, Some(6));
///
/// stop.stop();
/// let report = working.join().map_err(|_| "the worker panicked")??;
/// assert_eq!(report.succeeded, 1);
/// # Ok(())
/// # }
/// ```
///
/// # Effects on the program
/// It prints nothing, reads no configuration, handles no signal unless [`Worker::follow_signals`] is called, starts no process
/// and adopts none. It has one thread for each slot and four more, and about four connections.
///
/// # Handlers that do not end
/// A thread cannot be ended from outside, and **a handler never takes the program down**. A handler is asked to end
/// ([`ActiveRun::stop_reason`], [`CancelToken`](crate::CancelToken)) in these cases:
/// - It has neither ended nor reported anything within the timeout of its task, by default a day. [`ActiveRun::heartbeat`] and
///   every report restart the timeout.
/// - The lease of its run has expired, because the database was unreachable.
/// - [`Worker::stop_wait`] was set, and has passed after a stop.
///
/// If it has not ended within [`Worker::overrun_grace`], the worker gives up on it: the end of the run is recorded, the thread
/// is left behind, and another thread takes over its slot. What the thread reports or returns later is not stored. It may still
/// work while another attempt of the task begins; if your program cannot allow that, use [`OverrunAction::Abort`].
///
/// When [`Worker::max_left_behind`] threads were left behind, the worker claims nothing more and reports
/// [`WorkerEvent::ClaimsNothing`], until one of them has ended.
///
/// [`ActiveRun::stop_reason`]: crate::ActiveRun::stop_reason
/// [`ActiveRun::heartbeat`]: crate::ActiveRun::heartbeat
#[must_use]
pub struct Worker {
    url: DatabaseUrl,
    registry: HandlerRegistry,
    options: WorkOptions,
    name: Option<String>,
    spool: Option<PathBuf>,
    on_event: OnEvent,
    stop: StopSignals,
    stop_handle: StopHandle,
    follows_signals: bool,
}

/// The result of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkReport {
    /// Executed runs.
    pub processed: u64,
    /// Executed runs that succeeded.
    pub succeeded: u64,
    /// Executed runs that failed or timed out.
    pub failed: u64,
    /// Executed runs that were released.
    pub released: u64,
    /// Executed runs that were cancelled meanwhile.
    pub cancelled: u64,
    /// Threads of handlers that did not end when asked to, and still have not.
    pub left_behind: usize,
    /// Why outcomes could not be written to the spool, if so.
    pub spool_problem: Option<String>,
}

impl Worker {
    /// Creates a worker on the database of this queue, without classes, with one slot for each processor.
    ///
    /// # Errors
    /// Returns [`Error::Failed`] if no descriptor is left.
    pub fn new(queue: &TaskQueue) -> Result<Self, Error> {
        let (stop, stop_handle) = StopSignals::by_hand().map_err(|error| Error::Failed(error.to_string()))?;
        let slots = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Ok(Self {
            // The queue continues when the worker must end.
            url: queue.shared.url.with_own_patience(),
            registry: HandlerRegistry::new(),
            options: WorkOptions { slots, stop_wait: Duration::MAX, ..WorkOptions::default() },
            name: None,
            spool: default_spool_path(&Environment::of_others()),
            on_event: Box::new(|_| {}),
            stop,
            stop_handle,
            follows_signals: false,
        })
    }

    /// Adds a class; a later handler of the same class replaces an earlier one. Runs of other classes are left to other
    /// runners.
    pub fn class(mut self, name: impl Into<String>, handler: impl TaskHandler + 'static) -> Self {
        self.registry.register(name, handler);
        self
    }

    /// Sets how many runs are executed at once, 1 or more.
    pub fn slots(mut self, count: usize) -> Self {
        self.options.slots = count;
        self
    }

    /// Sets what happens when a handler does not end although it must: after its timeout, when the lease of its run has
    /// expired, or when the time to stop has passed. By default its thread is left behind.
    pub fn on_overrun(mut self, action: OverrunAction) -> Self {
        self.registry.overrun.action = action;
        self
    }

    /// Sets how long a handler may continue after it was asked to end; 10 seconds by default.
    pub fn overrun_grace(mut self, time: Duration) -> Self {
        self.registry.overrun.grace = time;
        self
    }

    /// Sets how many threads may be left behind before nothing more is claimed, 1 or more; by default one for each slot. The
    /// worker claims again when some of them have ended.
    pub fn max_left_behind(mut self, threads: usize) -> Self {
        self.registry.overrun.most = Some(threads);
        self
    }

    /// Sets the name that `taskqueue runner` shows, and that `pause`, `drain` and `stop` take; the default is host and process
    /// id.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Ends after this many runs.
    pub fn max_runs(mut self, count: u64) -> Self {
        self.options.max_runs = Some(count);
        self
    }

    /// Starts no run after this time, and ends.
    pub fn max_time(mut self, time: Duration) -> Self {
        self.options.max_time = Some(time);
        self
    }

    /// Ends after being idle for this long; with zero, as soon as nothing is left.
    pub fn idle_exit(mut self, time: Duration) -> Self {
        self.options.idle_exit = Some(time);
        self
    }

    /// Sets how long the runs in progress may continue after a stop; by default as long as they need. After that, their
    /// handlers are asked to end, and the runs are released.
    pub fn stop_wait(mut self, time: Duration) -> Self {
        self.options.stop_wait = time;
        self
    }

    /// Sets the directory on the local disk, created if needed, that keeps the end of a run until the database has it. So the
    /// end survives a crash of the program. The default is that of the command line: `taskqueue/spool` under `$XDG_STATE_HOME`.
    /// All programs that process runs on a host as the same user should use the same one: a rescue reads there what a dead
    /// program had begun and ended.
    pub fn spool(mut self, directory: impl Into<PathBuf>) -> Self {
        self.spool = Some(directory.into());
        self
    }

    /// Calls this with each event, in a thread for which all slots wait: it should return soon.
    pub fn on_event(mut self, on_event: impl FnMut(WorkerEvent<'_>) + Send + 'static) -> Self {
        self.on_event = Box::new(on_event);
        self
    }

    /// Handles INT and TERM of the process while the worker runs. The first one stops the worker like its handle; a second one
    /// gives up on handlers that are still running, after 2 seconds at most. After the worker has ended, the process ignores
    /// these signals.
    pub fn follow_signals(mut self) -> Self {
        self.follows_signals = true;
        self
    }

    /// Returns a handle that stops the worker from any thread, before or while it runs. The worker then claims nothing more,
    /// releases claimed runs that were not started at no cost, and waits for the runs in progress.
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        self.stop_handle.clone()
    }

    /// Runs the worker until it is stopped or its options end it. It waits for an unreachable database.
    ///
    /// # Errors
    /// Returns [`Error::Input`] if a class or a name is invalid, or if there is no class or no slot. Returns an error of the
    /// database if it was never reached, or is still unreachable when the worker is stopped; outcomes that could not be
    /// recorded are then in the spool.
    pub fn run(mut self) -> Result<WorkReport, Error> {
        self.check()?;
        let mut ctx = Context::open(&self.url, Handlers::new(self.registry, ClassesInUse::default()))?;
        ctx.set_spool(self.spool.as_deref());
        if let Some(name) = &self.name {
            ctx.name_runner(name)?;
        }
        if self.follows_signals {
            self.stop.follow_signals(&self.stop_handle).map_err(|error| Error::Failed(error.to_string()))?;
        }
        Ok(work(&mut ctx, &self.options, &self.stop, &mut EventForwarder { on_event: self.on_event })?.into())
    }

    fn check(&self) -> Result<(), Error> {
        for name in self.registry.names() {
            name.parse::<TaskClass>().map_err(|error| Error::Input(error.to_string()))?;
        }
        if self.registry.names().next().is_none() {
            return Err(Error::Input("a worker needs a class".to_owned()));
        }
        if self.options.slots == 0 {
            return Err(Error::Input("a worker needs a slot".to_owned()));
        }
        Ok(())
    }
}

impl From<ProcessReport> for WorkReport {
    fn from(report: ProcessReport) -> Self {
        let ProcessReport { processed, succeeded, failed, released, cancelled, left_behind, spool_problem, .. } =
            report;
        Self { processed, succeeded, failed, released, cancelled, left_behind, spool_problem }
    }
}
