//! [`Worker`]: a runner with many slots inside a program, for classes that Rust types handle.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use super::error::Error;
use super::task_queue::TaskQueue;
use super::worker_event::{EventForwarder, OnEvent, WorkerEvent};
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_engine::config::{Classes, Environment, default_spool_path};
use taskqueue_engine::handler::registry::HandlerRegistry;
use taskqueue_engine::handler::{OverrunAction, TaskHandler};
use taskqueue_engine::running::process_run::ProcessReport;
use taskqueue_engine::work::{WorkOptions, work};
use taskqueue_engine::{Context, DatabaseUrl, Handlers, StopHandle, StopSignals};

/// A worker inside a program: it creates runs for what is due, claims those of its classes, executes them on threads of its own
/// and records how they ended, until it is told to stop. To others it is a runner like `taskqueue work`; both may work on one
/// store at the same time, and a program may have several.
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
/// # What it does to the program
/// It prints nothing, reads no configuration, takes no signal unless [`Worker::follow_signals`] asks for it, starts no process and
/// adopts none. It has a thread for each slot and four more, and about four connections.
///
/// # Handlers that do not end
/// A thread cannot be ended from outside, and **a handler never takes the program down**. One that must end is asked to
/// ([`ActiveRun::stop_reason`], [`CancelToken`](crate::CancelToken)): when it has neither ended nor reported anything within the
/// timeout of its task, by default a day ([`ActiveRun::heartbeat`] and every report count it anew); when the lease of the run is
/// over, because the database was away; and after [`Worker::stop_wait`], if that was set. If it has not ended within
/// [`Worker::overrun_grace`], the worker gives up on it: the end of the run is recorded, the thread is left behind, and its slot
/// goes on with another one. Nothing that the thread reports or returns later reaches the store. It may still work while another
/// attempt of the task begins; a program that cannot bear that takes [`OverrunAction::Abort`].
///
/// With [`Worker::max_left_behind`] such threads the worker claims nothing more, and says so
/// ([`WorkerEvent::ClaimsNothing`]), until one of them has ended.
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

/// What a worker has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkReport {
    /// Runs executed.
    pub processed: u64,
    /// Of these: ended well.
    pub succeeded: u64,
    /// Of these: failed or timed out.
    pub failed: u64,
    /// Of these: given back.
    pub released: u64,
    /// Of these: cancelled while they were processed.
    pub cancelled: u64,
    /// Threads of handlers that did not end when they were asked to, and have not ended since.
    pub left_behind: usize,
    /// Why outcomes were not kept on the local disk until the database had them, if so.
    pub spool_problem: Option<String>,
}

impl Worker {
    /// A worker on the database of this queue, without classes yet, with a slot for each processor.
    ///
    /// # Errors
    /// [`Error::Failed`] when no descriptor is left.
    pub fn new(queue: &TaskQueue) -> Result<Self, Error> {
        let (stop, stop_handle) = StopSignals::by_hand().map_err(|error| Error::Failed(error.to_string()))?;
        let slots = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Ok(Self {
            // The queue goes on when the worker has to end.
            url: queue.url().with_own_patience(),
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

    /// Adds a class; of two handlers of the same class the later one counts. Runs of other classes are left to others.
    pub fn class(mut self, name: impl Into<String>, handler: impl TaskHandler + 'static) -> Self {
        self.registry.register(name, handler);
        self
    }

    /// Executes so many runs at once, 1 or more.
    pub fn slots(mut self, count: usize) -> Self {
        self.options.slots = count;
        self
    }

    /// What happens when a handler does not end although it must: after its timeout, when the lease of its run is over, or when the
    /// time to stop has passed. By default its thread is left behind.
    pub fn on_overrun(mut self, action: OverrunAction) -> Self {
        self.registry.overrun.action = action;
        self
    }

    /// How long a handler may go on after it is asked to end; 10 seconds by default.
    pub fn overrun_grace(mut self, time: Duration) -> Self {
        self.registry.overrun.grace = time;
        self
    }

    /// How many threads may be left behind before it claims nothing more, 1 or more; by default as many as it has slots. It claims
    /// again once some of them have ended.
    pub fn max_left_behind(mut self, threads: usize) -> Self {
        self.registry.overrun.most = Some(threads);
        self
    }

    /// By which name `taskqueue runners` shows it and `pause`, `drain` and `stop` find it; by default host and process number.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Ends after so many runs.
    pub fn max_runs(mut self, count: u64) -> Self {
        self.options.max_runs = Some(count);
        self
    }

    /// Starts no run after this time, and ends.
    pub fn max_time(mut self, time: Duration) -> Self {
        self.options.max_time = Some(time);
        self
    }

    /// Ends when there was nothing to do for so long; without any time, as soon as nothing is left.
    pub fn idle_exit(mut self, time: Duration) -> Self {
        self.options.idle_exit = Some(time);
        self
    }

    /// How long the runs in progress may go on after it was told to stop; without it, as long as they need. After that their
    /// handlers are asked to end, and the runs go back.
    pub fn stop_wait(mut self, time: Duration) -> Self {
        self.options.stop_wait = time;
        self
    }

    /// The directory of the local disk, made when it is needed, where the end of a run stands until the database has it, so
    /// that it survives the program. By default that of the command line: `taskqueue/spool` under `$XDG_STATE_HOME`. All
    /// that process runs on a host as the same user should have the same one: who finds a program dead looks there for what
    /// it had begun and ended.
    pub fn spool(mut self, directory: impl Into<PathBuf>) -> Self {
        self.spool = Some(directory.into());
        self
    }

    /// Tells this what happens, on a thread for which all slots wait: it should be short.
    pub fn on_event(mut self, on_event: impl FnMut(WorkerEvent<'_>) + Send + 'static) -> Self {
        self.on_event = Box::new(on_event);
        self
    }

    /// Takes over INT and TERM of the process while it works: the first one stops it as its handle does, and a second one gives up
    /// on handlers that are still at work, after 2 seconds at most. Once it has ended, the process ignores them.
    pub fn follow_signals(mut self) -> Self {
        self.follows_signals = true;
        self
    }

    /// What tells it to stop, from any thread, before it runs or while it does: it claims nothing more, gives back at no cost
    /// what it has claimed and not begun, and waits for the runs in progress.
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        self.stop_handle.clone()
    }

    /// Works, until it is told to stop or its options say that it is enough. A database that goes away is waited for.
    ///
    /// # Errors
    /// [`Error::Input`] for a class or a name that cannot be used, or where there is no class or no slot; the database's, where it
    /// was never reached, or is still away when the worker is told to stop. What could not be recorded then is on the disk.
    pub fn run(mut self) -> Result<WorkReport, Error> {
        self.check()?;
        let mut ctx = Context::open(&self.url, Handlers::new(self.registry, Classes::default(), false))?;
        if let Some(directory) = &self.spool {
            ctx = ctx.with_spool(directory);
        }
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
