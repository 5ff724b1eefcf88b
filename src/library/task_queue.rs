//! [`TaskQueue`]: a database, with one connection for each thread that uses it at the same time.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::error::Error;
use super::new_task::NewTask;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::{Run, Task};
use taskqueue_domain::task::unique::QueuedTask;
use taskqueue_engine::config::{Environment, default_spool_path};
use taskqueue_engine::inspect::wait::{self, Waited};
use taskqueue_engine::queueing::queue::{ClassCheck, queue_all, queue_one};
use taskqueue_engine::upkeep::migrate;
use taskqueue_engine::{
    ConnectWait, Context, DatabaseUrl, EngineError, EngineResult, Handlers, StopHandle, StopSignals,
};

/// A queue: the tables of one database.
///
/// It can be cloned and shared between threads: each call uses an idle connection or opens a new one. A lost connection is
/// reopened and its operation retried, but never executed twice.
///
/// ```
/// use taskqueue::{NewTask, TaskQueue};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let address = directory.path().join("tasks.db").display().to_string();
/// let queue = TaskQueue::connect(&address)?;
/// let queued = queue.queue(NewTask::new("mail.send").data(&"ann@example.org")?)?;
/// let task = queue.task(queued.id)?;
/// assert_eq!(task.data_as::<String>()?, "ann@example.org");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TaskQueue {
    pub(super) shared: Arc<SharedQueue>,
    /// The reason for everything that this handle does.
    reason: Option<String>,
    spool: Option<PathBuf>,
}

pub(super) struct SharedQueue {
    pub(super) url: DatabaseUrl,
    /// Connections that no call uses at the moment.
    idle: Mutex<Vec<Context>>,
    /// Set by the handle.
    pub(super) stop: StopSignals,
    stop_handle: StopHandle,
}

/// A task that has succeeded, is exhausted, quarantined or cancelled, or has expired, and its last run if there was one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ended {
    /// The task.
    pub task: Task,
    /// Its last attempt.
    pub run: Option<Run>,
}

impl Ended {
    /// Returns true if it succeeded.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.task.status.is(TaskStatus::Success)
    }
}

impl TaskQueue {
    /// Connects to a database. The address is that of `--database`: `sqlite:///path` or a bare path, `postgres://…` or
    /// `mysql://…`. The file of a SQLite store is created if it does not exist; the tables of a server are created by
    /// [`TaskQueue::migrate`].
    ///
    /// # Errors
    /// Returns [`Error::Input`] if the address is invalid, [`Error::Unavailable`], or [`Error::Failed`] if the tables are
    /// missing or are newer than this program.
    pub fn connect(address: &str) -> Result<Self, Error> {
        let url = DatabaseUrl::parse(address).map_err(EngineError::from)?;
        let first = open(&url)?;
        let (stop, stop_handle) = StopSignals::by_hand().map_err(|error| Error::Failed(error.to_string()))?;
        let shared = Arc::new(SharedQueue { url, idle: Mutex::new(vec![first]), stop, stop_handle });
        Ok(Self { shared, reason: None, spool: default_spool_path(&Environment::of_others()) })
    }

    /// Returns this queue with a reason for everything that is done with it. The reason is stored in its events, as with
    /// `--reason` on the command line.
    ///
    /// ```
    /// # use taskqueue::{NewTask, TaskQueue};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let queue = TaskQueue::connect(&directory.path().join("tasks.db").display().to_string())?;
    /// # let id = queue.queue(NewTask::new("mail.send"))?.id;
    /// queue.because("ann asked for it").cancel(id)?.all()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn because(&self, reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), ..self.clone() }
    }

    /// Sets the directory on the local disk, created if needed, that keeps a claim whose answer was lost until it is released.
    /// The default is that of the command line and of [`Worker`](crate::Worker): `taskqueue/spool` under `$XDG_STATE_HOME`. All
    /// programs of a user on a host should use the same one.
    #[must_use]
    pub fn spool(self, directory: impl Into<PathBuf>) -> Self {
        Self { spool: Some(directory.into()), ..self }
    }

    /// Returns a host on another machine that this address may use without TLS: others could read tasks and results on the
    /// network, and a server could pretend to be this host. libpq also reads hosts and modes from `PGHOST`, `PGHOSTADDR`,
    /// `PGSSLMODE`, `PGSERVICE` and the service file; they count. The command line prints a warning with this host. Connects to
    /// nothing.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # #[cfg(feature = "mysql")] {
    /// let address = "mysql://shop@db.example.org/tasks";
    /// assert_eq!(taskqueue::TaskQueue::host_without_tls(address)?.as_deref(), Some("db.example.org"));
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Input`] if the address is invalid.
    pub fn host_without_tls(address: &str) -> Result<Option<String>, Error> {
        let url = DatabaseUrl::parse(address).map_err(EngineError::from)?;
        Ok(taskqueue_engine::host_without_tls(&url))
    }

    /// Creates or updates the tables. Returns the migrations that were applied.
    ///
    /// # Errors
    /// Returns the same errors as [`TaskQueue::connect`].
    pub fn migrate(address: &str) -> Result<Vec<String>, Error> {
        let url = DatabaseUrl::parse(address).map_err(EngineError::from)?;
        Ok(migrate::run(&url, &ConnectWait::none(), &mut |_| {})?.newly_applied)
    }

    /// Queues a task of any class, with or without a handler here. When this returns, the task is committed.
    ///
    /// # Errors
    /// Returns [`Error::Input`], [`Error::KeyTaken`], [`Error::Unavailable`], or another error of the database.
    pub fn queue(&self, task: NewTask) -> Result<QueuedTask, Error> {
        self.with(|ctx| {
            let now = if task.needs_now() { Some(ctx.now()?) } else { None };
            let request = task.into_request(&ctx.me.user, now)?;
            Ok(queue_one(ctx, request, ClassCheck::AnyName)?.0)
        })
    }

    /// Queues all of these tasks, or none, in the fastest way for many. The results are in the order of the tasks.
    ///
    /// # Errors
    /// Returns the same errors as [`TaskQueue::queue`], with the number of the task, from 1.
    pub fn queue_many(&self, tasks: impl IntoIterator<Item = NewTask>) -> Result<Vec<QueuedTask>, Error> {
        let tasks: Vec<NewTask> = tasks.into_iter().collect();
        self.with(|ctx| {
            let now = if tasks.iter().any(NewTask::needs_now) { Some(ctx.now()?) } else { None };
            let user = ctx.me.user.clone();
            let requests = tasks.into_iter().map(|task| task.into_request(&user, now));
            Ok(queue_all(ctx, requests.collect::<Result<Vec<_>, _>>()?, ClassCheck::AnyName)?)
        })
    }

    /// Returns a task.
    ///
    /// # Errors
    /// Returns [`Error::NotFound`], or an error of the database.
    pub fn task(&self, id: TaskId) -> Result<Task, Error> {
        self.with(|ctx| Ok(ctx.store.get_task(id).map_err(EngineError::from)?))
    }

    /// Returns the newest `limit` attempts of a task, newest first.
    ///
    /// # Errors
    /// Returns an error of the database.
    pub fn runs(&self, id: TaskId, limit: u32) -> Result<Vec<Run>, Error> {
        self.with(|ctx| Ok(ctx.store.list_runs_of_task(id, limit.into()).map_err(EngineError::from)?))
    }

    /// Waits until a task has succeeded, is exhausted, quarantined or cancelled, or has expired, whatever process executes it.
    /// Returns `None` if that did not happen within `limit`, or if a [`StopHandle`] stopped the wait.
    ///
    /// On PostgreSQL and SQLite it is notified of the end, on the other engines it polls; `docs/library.md` states how soon it
    /// returns.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use taskqueue::{NewTask, TaskQueue};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let queue = TaskQueue::connect(&directory.path().join("tasks.db").display().to_string())?;
    /// # let id = queue.queue(NewTask::new("sum"))?.id;
    /// match queue.wait(id, Duration::from_millis(10))? {
    ///     Some(ended) if ended.is_success() => {
    ///         let run = ended.run.ok_or("it was set to success by hand")?;
    ///         let sum: Option<f64> = run.results_as()?;
    ///         println!("the sum is {sum:?}");
    ///     }
    ///     Some(ended) => println!("it ended as {}", ended.task.status),
    ///     None => println!("it goes on"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::NotFound`], or an error of the database.
    pub fn wait(&self, id: TaskId, limit: Duration) -> Result<Option<Ended>, Error> {
        self.with(|ctx| match wait::wait_for_task(ctx, id, &self.shared.stop, Some(limit), &mut |_| {})? {
            Waited::Ended(ended) => Ok(Some(Ended { task: ended.task, run: ended.run })),
            Waited::Stopped | Waited::TooLong => Ok(None),
        })
    }

    /// Returns a handle that stops everything that waits here, from any thread or from a signal handler's thread.
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        self.shared.stop_handle.clone()
    }

    /// Returns the reason.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Calls `work` with a connection that no other call uses meanwhile.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Context) -> Result<T, Error>) -> Result<T, Error> {
        let idle = self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut ctx = match idle {
            Some(ctx) => ctx,
            None => open(&self.shared.url)?,
        };
        ctx.set_spool(self.spool.as_deref());
        let result = ctx.because(self.reason(), work);
        self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner).push(ctx);
        result
    }
}

/// Opens a context without handlers, to queue and read.
pub(super) fn open(url: &DatabaseUrl) -> EngineResult<Context> {
    Context::open(url, Handlers::default())
}
