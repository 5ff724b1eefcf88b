//! What every use case works with: the store, the handlers, and who this process is.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::config::{Announcements, ScheduleReader};
use crate::end_statements::end_statements_on;
use crate::error::{EngineError, EngineResult};
use crate::handler::handlers::{ClassesInUse, Handlers};
use crate::me::Me;
use taskqueue_domain::limits::pause::check_runner_name;
use taskqueue_domain::monitoring::notice::Digest;
use taskqueue_domain::task::choosing::class_patterns::ClassPatterns;
use taskqueue_domain::task::choosing::visible_tasks::VisibleTasks;
use taskqueue_domain::task::ids::RunnerId;
use taskqueue_domain::task::parent::Parent;
use taskqueue_domain::text::reason::parse_reason;
use taskqueue_host::files::spool::Spool;
use taskqueue_host::files::trusted_path::check_store;
use taskqueue_host::machine::account::is_root;
use taskqueue_host::random::tokens;
use taskqueue_process::children::command_requests::CommandRequests;
use taskqueue_process::signals::stop_signals::StopSignals;
use taskqueue_store::{ChangeListener, ConnectWait, DatabaseUrl, NewEvent, Origin, Store};

/// Prints final failures for the user.
pub type FailurePrinter = Arc<dyn Fn(&Digest) + Send + Sync>;

/// What every use case needs.
pub struct Context {
    /// The database.
    pub store: Store,
    /// The handlers of all classes.
    pub handlers: Arc<Handlers>,
    /// This process.
    pub me: Me,
    /// Where the outcomes of runs are kept until the database has them; `None` sends them directly, and they are lost if that
    /// fails.
    pub spool: Option<Spool>,
    /// Notices and hooks.
    pub announcements: Announcements,
    /// Prints final failures if no program or file is notified.
    pub(crate) failure_printer: Option<FailurePrinter>,
    /// Reads the schedules of the configuration; `None` without a configuration file.
    pub schedule_reader: Option<ScheduleReader>,
    /// The reason that the operator gave for the current change.
    pub(crate) reason: Option<String>,
    /// Why an outcome could not be written to the spool.
    pub spool_problem: Option<String>,
    /// Why the program of a hook failed.
    pub hook_problem: Option<String>,
    /// A registration that this process has lost: its slots count until it is finished.
    pub(crate) lost_runner: Option<RunnerId>,
    /// The signals that stop work of many parts early.
    pub(crate) stop: Option<Arc<StopSignals>>,
    /// Executes the commands that handlers of this process request.
    pub requests: Option<Arc<CommandRequests>>,
    /// The task for which this process acts, if a handler requested it.
    pub(crate) parent: Option<Parent>,
    /// The listener for finished tasks, kept for the next wait.
    pub(crate) end_listener: Option<ChangeListener>,
}

impl Context {
    /// Opens the database.
    ///
    /// # Errors
    /// Returns an error if the database cannot be reached or has the wrong tables, or if the user of this process is unknown.
    pub fn open(url: &DatabaseUrl, handlers: Handlers) -> EngineResult<Self> {
        Self::open_waiting(url, handlers, &ConnectWait::none())
    }

    /// Like [`Context::open`], and retries a connection that the server refuses for now.
    ///
    /// # Errors
    /// Returns the same errors as [`Context::open`].
    pub fn open_waiting(url: &DatabaseUrl, handlers: Handlers, wait: &ConnectWait) -> EngineResult<Self> {
        Ok(Self::over(Store::open_waiting(url, wait)?, Arc::new(for_store(url, handlers)), Me::new()))
    }

    /// Opens the database for a verb that only reads. A SQLite store on a disk that is full or read-only is opened without a
    /// log and without locks. The result then contains a warning to print.
    ///
    /// # Errors
    /// Returns the same errors as [`Context::open`].
    pub fn open_to_read(
        url: &DatabaseUrl,
        handlers: Handlers,
        wait: &ConnectWait,
    ) -> EngineResult<(Self, Option<String>)> {
        let (store, warning) = match Store::open_waiting(url, wait) {
            Ok(store) => (store, None),
            Err(error) => {
                let Some((store, warning)) = Store::open_frozen(url, &error)? else { return Err(error.into()) };
                (store, Some(warning))
            }
        };
        Ok((Self::over(store, Arc::new(for_store(url, handlers)), Me::new()), warning))
    }

    /// Opens an empty SQLite store in memory, to read in place of a file that does not exist yet.
    ///
    /// # Errors
    /// Returns [`StoreError::Migration`].
    pub fn open_empty(url: &DatabaseUrl, handlers: Handlers) -> EngineResult<Self> {
        Ok(Self::over(Store::open_empty(url)?, Arc::new(for_store(url, handlers)), Me::new()))
    }

    /// Creates a context with this connection; `me` is recorded with all changes.
    fn over(mut store: Store, handlers: Arc<Handlers>, me: Me) -> Self {
        store.keep_by_class(handlers.keep_of_class());
        store.set_origin(Origin { actor: me.user.clone(), host: me.host.clone() });
        Self {
            store,
            handlers,
            me,
            spool: None,
            announcements: Announcements::default(),
            failure_printer: None,
            schedule_reader: None,
            reason: None,
            spool_problem: None,
            hook_problem: None,
            lost_runner: None,
            stop: None,
            requests: None,
            parent: None,
            end_listener: None,
        }
    }

    /// Keeps the outcomes of runs in this directory of the local disk until the database has them; without one, they are not
    /// kept.
    pub fn set_spool(&mut self, directory: Option<&Path>) {
        self.spool = directory.map(|directory| Spool::new(directory, self.store.url().identity()));
    }

    /// Uses other classes for what begins from here on.
    pub fn use_classes(&mut self, classes: ClassesInUse) {
        let handlers = self.handlers.configured_anew(classes);
        handlers.retire_coprocesses();
        self.store.keep_by_class(handlers.keep_of_class());
        self.handlers = Arc::new(handlers);
    }

    /// Sets what prints each task that will not be retried, if no host has `[notify]`: once, by `create-runs`, `tick` or a
    /// worker.
    pub fn print_failures_with(&mut self, printer: FailurePrinter) {
        self.failure_printer = Some(printer);
    }

    /// Stops work of many parts, like `cancel` or `prune`, between two parts once one of these signals has come.
    pub fn stop_on(&mut self, signals: Arc<StopSignals>) {
        end_statements_on(self.store.url(), &signals, Duration::ZERO);
        self.stop = Some(signals);
    }

    /// Returns a function that opens the same context in another thread, with its own connection.
    pub fn reopener(&self) -> impl Fn() -> EngineResult<Self> + Send + use<> {
        let (url, handlers, me, spool) =
            (self.store.url().clone(), Arc::clone(&self.handlers), self.me.clone(), self.spool.clone());
        let (announcements, failure_printer) = (self.announcements.clone(), self.failure_printer.clone());
        let schedule_reader = self.schedule_reader.clone();
        move || {
            let opened = Self::over(Store::open(&url)?, Arc::clone(&handlers), me.clone());
            let (announcements, failure_printer) = (announcements.clone(), failure_printer.clone());
            let schedule_reader = schedule_reader.clone();
            Ok(Self { spool: spool.clone(), announcements, failure_printer, schedule_reader, ..opened })
        }
    }

    /// Returns true if one of those signals has come.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stop_question()()
    }

    /// Like `is_stopping`, as a function that borrows nothing.
    pub(crate) fn stop_question(&self) -> impl Fn() -> bool + use<> {
        let stop = self.stop.clone();
        move || stop.as_ref().is_some_and(|signals| signals.is_stopping())
    }

    /// Gives this process a name as a runner, by which operators can pause, drain and stop it.
    ///
    /// # Errors
    /// Returns [`EngineError::Input`] if the name is invalid.
    pub fn name_runner(&mut self, name: &str) -> EngineResult<()> {
        check_runner_name(name).map_err(EngineError::Input)?;
        name.clone_into(&mut self.me.runner_name);
        Ok(())
    }

    /// Runs `act` with a reason, which is stored as `reason` in the details of its events.
    ///
    /// # Errors
    /// Returns [`EngineError::Input`] if the reason is too long or has a NUL, and then `act` is not run; otherwise the errors
    /// of `act`.
    pub fn because<T, E: From<EngineError>>(
        &mut self,
        reason: Option<&str>,
        act: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let reason = parse_reason(reason).map_err(EngineError::Input)?;
        let outer = std::mem::replace(&mut self.reason, reason);
        let result = act(self);
        self.reason = outer;
        result
    }

    /// Runs `act` for a user of this process: what it queues and changes is recorded under this name.
    pub fn on_behalf_of<T>(&mut self, user: &str, act: impl FnOnce(&mut Self) -> T) -> T {
        let own = std::mem::replace(&mut self.me.user, user.to_owned());
        self.store.set_origin(Origin { actor: user.to_owned(), host: self.me.host.clone() });
        let result = act(self);
        self.store.set_origin(Origin { actor: own.clone(), host: self.me.host.clone() });
        self.me.user = own;
        result
    }

    /// Runs `act` for a caller to whom only tasks of these classes exist; `None`: all tasks.
    pub fn limited_to<T>(&mut self, classes: Option<ClassPatterns>, act: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.store.set_visible(classes.map_or(VisibleTasks::All, VisibleTasks::Classes));
        let result = act(self);
        self.store.set_visible(outer);
        result
    }

    /// Returns an event for an operator's action, with the reason if there is one. The caller may add a task.
    pub(crate) fn operator_event(&self, kind: &'static str, mut details: serde_json::Value) -> NewEvent {
        if let (Some(reason), Some(details)) = (&self.reason, details.as_object_mut()) {
            details.entry("reason").or_insert_with(|| reason.as_str().into());
        }
        self.me.event(kind, details)
    }

    /// Notifies waiters that a task may have finished. A waiter that is not notified finds out later, because it also polls.
    pub(crate) fn notify_finished(&mut self) {
        let _ = self.store.notify_finished();
    }

    /// Returns the time of the database's clock (rule R8).
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub fn now(&mut self) -> EngineResult<DateTime<Utc>> {
        Ok(self.store.now()?)
    }
}

/// Requires explicit users if root executes tasks that others can queue, because these would run with root's rights.
fn for_store(url: &DatabaseUrl, handlers: Handlers) -> Handlers {
    if is_root() && others_can_queue(url) { handlers.naming_users() } else { handlers }
}

/// Returns true if other users can insert rows: on a server, or into a file that they can write or replace.
#[must_use]
pub fn others_can_queue(url: &DatabaseUrl) -> bool {
    url.path().is_none_or(|path| check_store(&path).is_err())
}

/// Returns a new fencing token for a claim.
pub(crate) fn new_token() -> EngineResult<String> {
    Ok(new_tokens(1)?.concat())
}

/// Returns `count` new tokens.
pub(crate) fn new_tokens(count: usize) -> EngineResult<Vec<String>> {
    tokens(count).map_err(|source| EngineError::Os { what: "cannot get random numbers", source })
}
