//! The start of every verb: reads the configuration, finds the address of the database and the known classes. The address comes
//! from the option, the variable, the configuration file, or the default, in this order.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::GlobalArgs;
use super::error::CliError;
use super::output::Out;
use taskqueue_domain::monitoring::listen_address::ListenAddress;
use taskqueue_engine::config::{
    Classes, Config, ConfigError, Environment, HandlerEnvironment, ScheduleReader, default_spool_path,
    default_store_path, load, load_file_or_pipe, token_uses_path,
};
use taskqueue_engine::handler::registry::HandlerRegistry;
use taskqueue_engine::queueing::own_queue::CommandRequests;
use taskqueue_engine::work::Reconfiguration;
use taskqueue_engine::{
    ClassesInUse, ConnectWait, Context, DatabaseUrl, Engine, EngineError, EngineResult, Handlers, StopSignals,
    create_private_dir, end_statements_on, host_without_tls, others_can_queue, print_notices_with,
};
use taskqueue_views::shell_word::shell_word;
use taskqueue_web::TokenUses;

/// What a verb starts with.
pub(crate) struct Session {
    /// The address of the store.
    pub(crate) url: DatabaseUrl,
    /// The configuration, with the classes.
    pub(crate) config: Config,
    source: ConfigSource,
    /// The directory of the default store, which is created with it. The directory of an explicit store must exist: a typing
    /// error must not create a new, empty store.
    place: Option<PathBuf>,
    /// The directory where outcomes are kept until the database has them.
    pub(crate) spool: Option<PathBuf>,
    registry: HandlerRegistry,
    /// The variables of a handler, if this process runs inside one.
    handler: HandlerEnvironment,
    /// The address of the database as written.
    address: Option<String>,
    /// Whether the caller named the store, with an option or a variable.
    is_named: bool,
    /// How long to wait for a server that refuses a connection for now.
    wait: ConnectWait,
}

/// Where the configuration is read from.
#[derive(Clone)]
struct ConfigSource {
    option: Option<PathBuf>,
    environment: Environment,
}

impl ConfigSource {
    /// Reads it once, at the start of a verb.
    fn read_first(&self) -> Result<Config, ConfigError> {
        match &self.option {
            Some(path) => load_file_or_pipe(path),
            None => self.read(),
        }
    }

    fn read(&self) -> Result<Config, ConfigError> {
        load(self.option.as_deref().or(self.environment.config.as_deref()), &self.environment)
    }
}

/// Reads the configuration again, for a long-running verb.
pub(crate) struct Reloader {
    source: ConfigSource,
    url: DatabaseUrl,
    database: Option<String>,
    spool: Option<PathBuf>,
    work_slots: Option<usize>,
}

/// A reloaded configuration.
pub(crate) struct Reloaded {
    pub(crate) taken: Reconfiguration,
    /// The address where a worker serves metrics.
    pub(crate) metrics: Option<ListenAddress>,
    /// The changed keys that take effect at the next start.
    pub(crate) for_next_start: Vec<&'static str>,
}

impl Reloader {
    /// Returns the configuration as it is now, and its classes.
    pub(crate) fn configuration(&self) -> Result<(Config, ClassesInUse), ConfigError> {
        let config = self.source.read()?;
        let classes = classes_in_use(&config, &self.url);
        Ok((config, classes))
    }

    pub(crate) fn read(&self) -> Result<Reloaded, ConfigError> {
        let (config, classes) = self.configuration()?;
        let has_changed = [
            ("database", config.database != self.database),
            ("spool", config.spool != self.spool),
            ("work_slots", config.work_slots != self.work_slots),
        ];
        let for_next_start = has_changed.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect();
        let taken = Reconfiguration { classes, announcements: config.announcements, stop_wait: config.stop_wait };
        Ok(Reloaded { taken, metrics: config.metrics, for_next_start })
    }
}

fn classes_in_use(config: &Config, url: &DatabaseUrl) -> ClassesInUse {
    ClassesInUse {
        classes: config.classes.clone(),
        exec_enabled: is_exec_enabled(config, url),
        exec_user: config.user.clone(),
    }
}

fn is_exec_enabled(config: &Config, url: &DatabaseUrl) -> bool {
    config.exec_enabled.unwrap_or_else(|| !others_can_queue(url))
}

/// Returns the path of the named configuration, or of the user's own, even if the system has one.
pub(crate) fn configuration_path(global: &GlobalArgs, environment: &Environment) -> PathBuf {
    global.config.clone().or_else(|| environment.config.clone()).unwrap_or_else(|| environment.own_config_path())
}

impl Session {
    /// Reads the configuration and finds the database; opens nothing.
    pub(crate) fn prepare(global: &GlobalArgs, registry: HandlerRegistry, out: &mut Out) -> anyhow::Result<Self> {
        print_notices_with(out.warning_printer());
        let source = ConfigSource { option: global.config.clone(), environment: Environment::own()? };
        let config = source.read_first()?;
        let environment = &source.environment;
        let handler = HandlerEnvironment::own()?;
        let (url, place) = find_database(global.database.as_deref(), &config, environment, out)?;
        let address = written_address(global.database.as_deref(), &config, environment).map(str::to_owned);
        let is_named = names_store(global, environment);
        if handler.token.is_some() && place.is_some() && is_missing(&url) {
            return Err(no_store_of_run(&url).into());
        }
        if let Some(host) = host_without_tls(&url) {
            let mode =
                if url.engine() == Engine::Postgres { "sslmode=verify-full" } else { "ssl_mode=verify_identity" };
            out.warn(&format!(
                "the connection to {host} may be unencrypted, or go to another server; add {mode} to the address of the database"
            ));
        }
        let spool = config.spool.clone().or_else(|| default_spool_path(environment));
        let wait = ConnectWait::none();
        Ok(Self { url, config, source, place, spool, registry, handler, address, is_named, wait })
    }

    /// Sets how long to retry a connection that the server refuses for now: the configured time, or the usual one of the
    /// command; `None` retries without a limit.
    pub(crate) fn waiting(mut self, usual: Option<Duration>, out: &Out) -> Self {
        let limit = usual.map(|usual| self.config.connect_wait.unwrap_or(usual));
        self.wait = limit.map_or_else(ConnectWait::forever, ConnectWait::up_to).announced_by(out.warning_printer());
        self
    }

    /// Opens the database for a runner with this name, if one was given; `None` if one of these signals came first.
    pub(crate) fn open_runner(
        self,
        name: Option<&str>,
        stop: &StopSignals,
        out: &Out,
    ) -> anyhow::Result<Option<Context>> {
        let mut ctx = match self.stopped_by(stop, out).open_or_make() {
            Err(_) if stop.is_stopping() => return Ok(None),
            opened => opened?,
        };
        name.map(|name| ctx.name_runner(name)).transpose()?;
        Ok(Some(ctx))
    }

    /// Prints a log line while it waits, and stops waiting after one of these signals.
    fn stopped_by(mut self, stop: &StopSignals, out: &Out) -> Self {
        print_notices_with(out.warning_printer());
        self.wait = self.wait.announced_by(out.warning_printer());
        if let Ok(count) = stop.counter() {
            let count = Mutex::new(count);
            self.wait = self.wait.stopped_by(move || count.lock().is_ok_and(|count| count() > 0));
        }
        self
    }

    /// Returns how long to wait for a server that refuses a connection for now.
    pub(crate) const fn connect_wait(&self) -> &ConnectWait {
        &self.wait
    }

    /// Stops waiting for statements when this time has passed after the first signal, or at once after the second one.
    pub(crate) fn end_statements_on(&self, stop: &StopSignals, wait: Duration) {
        end_statements_on(&self.url, stop, wait);
    }

    /// Handles signals from now on: the first one also stops waiting for statements.
    pub(crate) fn stop_at_once(&self) -> anyhow::Result<StopSignals> {
        let stop = StopSignals::install()?;
        self.end_statements_on(&stop, Duration::ZERO);
        Ok(stop)
    }

    /// Returns true if a service manager expects notifications.
    pub(crate) const fn is_supervised(&self) -> bool {
        self.source.environment.is_supervised
    }

    /// Returns the configuration as it was read at the start, and its classes.
    pub(crate) fn configuration(&self) -> (Config, ClassesInUse) {
        (self.config.clone(), classes_in_use(&self.config, &self.url))
    }

    /// Returns a reader that reloads the configuration while the verb runs.
    pub(crate) fn reloader(&self) -> Reloader {
        Reloader {
            source: self.source.clone(),
            url: self.url.clone(),
            database: self.config.database.clone(),
            spool: self.config.spool.clone(),
            work_slots: self.config.work_slots,
        }
    }

    /// Opens the database for a verb that changes or deletes existing tasks: without a store it has nothing to do.
    pub(crate) fn open(self) -> anyhow::Result<Context> {
        self.refuse_missing_file()?;
        self.open_or_make()
    }

    /// Opens the database for a verb that only reads, also on a disk that is full or read-only, with a warning. A default store
    /// that does not exist yet is read as empty; no file is created.
    pub(crate) fn open_to_read(self, out: &mut Out) -> anyhow::Result<Context> {
        self.refuse_missing_file()?;
        if self.place.is_some() && self.is_file_missing() {
            return self.open_empty();
        }
        self.open_to_serve(out)
    }

    /// Like [`Session::open_to_read`], for a server, which may start before the first task is queued; creates a SQLite store that
    /// does not exist.
    pub(crate) fn open_to_serve(self, out: &mut Out) -> anyhow::Result<Context> {
        self.open_by(|url, handlers, wait| {
            let (context, warning) = Context::open_to_read(url, handlers, wait)?;
            if let Some(warning) = warning {
                out.warn(&warning);
            }
            Ok(context)
        })
    }

    /// Like [`Session::open_to_read`], for a verb that reads repeatedly: a store that does not exist yet is an error.
    pub(crate) fn open_to_follow(self, out: &mut Out) -> anyhow::Result<Context> {
        if self.place.is_some() && self.is_file_missing() {
            return Err(self.no_store().into());
        }
        self.open_to_read(out)
    }

    /// Opens the database for a verb that waits for tasks; creates no file.
    pub(crate) fn open_to_wait(self) -> anyhow::Result<Context> {
        if self.place.is_some() && self.is_file_missing() {
            return self.open_empty();
        }
        self.open()
    }

    /// Returns true if the store is a file that does not exist yet.
    pub(crate) fn is_file_missing(&self) -> bool {
        is_missing(&self.url)
    }

    /// Returns what executes the commands of handlers: this program, with this configuration and this database. `None` if the
    /// configuration cannot be read again.
    fn command_requests(&self) -> Option<CommandRequests> {
        let database = self.address.clone().map(OsString::from).or_else(|| Some(self.url.path()?.into_os_string()))?;
        let mut environment = Vec::new();
        if let Some(path) = self.source.option.as_ref().or(self.source.environment.config.as_ref()) {
            if !path.metadata().is_ok_and(|found| !found.file_type().is_fifo()) {
                return None;
            }
            environment.push(("TASKQUEUE_CONFIG", path.clone().into_os_string()));
        }
        Some(CommandRequests::new(database, environment))
    }

    /// Returns what reads the schedules of the configuration: first those that were read at the start, then the file again. A pipe
    /// is never read again.
    fn schedule_reader(&self) -> Option<ScheduleReader> {
        if !self.config.exists {
            return None;
        }
        let is_file = self.config.path.metadata().is_ok_and(|found| found.is_file());
        let (first, source) = (self.config.schedules.clone(), self.source.clone());
        let is_read = AtomicBool::new(false);
        Some(Arc::new(move || match is_file && is_read.swap(true, Ordering::Relaxed) {
            true => source.read().map(|config| config.schedules),
            false => Ok(first.clone()),
        }))
    }

    /// Opens an empty store in memory, in place of a file that does not exist yet.
    pub(crate) fn open_empty(self) -> anyhow::Result<Context> {
        self.open_at(|url, handlers, _| Context::open_empty(url, handlers))
    }

    /// Refuses also a default store that does not exist yet, for a verb to which an empty store is of no use.
    pub(crate) fn refuse_missing_store(&self) -> Result<(), CliError> {
        if self.is_file_missing() { Err(self.no_store()) } else { Ok(()) }
    }

    fn no_store(&self) -> CliError {
        CliError::no_store(format!("there is no store {}", self.url)).with_hint(self.create_hint())
    }

    /// Returns the hint with the command that creates the store. Only the default store has a directory that it may create.
    fn create_hint(&self) -> String {
        let option = if self.place.is_none() {
            format!(" --database {}", shell_word(&self.url.to_string()))
        } else {
            String::new()
        };
        format!("check the name; `taskqueue{option} db migrate` creates a store there")
    }

    fn refuse_missing_file(&self) -> Result<(), CliError> {
        let Some(path) = self.url.path().filter(|_| self.place.is_none()) else { return Ok(()) };
        if path.metadata().is_ok_and(|found| found.is_file() && found.len() == 0) {
            return Err(CliError::no_store(format!("the file of the store {} is empty", self.url))
                .with_hint(self.create_hint()));
        }
        // Without its directory it cannot be created; opening it reports that.
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
        if self.is_file_missing() && directory.is_none_or(Path::is_dir) {
            return Err(self.no_store());
        }
        Ok(())
    }

    /// Returns the handlers of this host, without opening the store.
    pub(crate) fn into_handlers(self) -> Handlers {
        Handlers::new(self.registry, classes_in_use(&self.config, &self.url))
    }

    /// Returns when the tokens of the web server were used last on this host, by this user's server.
    pub(crate) fn token_uses(&self) -> Option<TokenUses> {
        token_uses_path(&self.source.environment).map(TokenUses::in_directory)
    }

    /// Returns true if the directory of the store exists, or if this program must not create it.
    pub(crate) fn has_place(&self) -> bool {
        self.place.as_deref().is_none_or(|directory| directory.try_exists().unwrap_or(true))
    }

    /// Creates the directory if it does not exist.
    pub(crate) fn make_place(&self) -> Result<(), CliError> {
        let Some(directory) = &self.place else { return Ok(()) };
        create_private_dir(directory).map_err(|error| {
            CliError::unreachable(format!(
                "cannot create the directory {} of the default store: {error}",
                directory.display()
            ))
            .with_hint("--database sqlite:///path/to/file")
        })
    }

    /// Opens the database for a verb that adds tasks, or that may run before the first start; creates a SQLite store that does
    /// not exist.
    pub(crate) fn open_or_make(self) -> anyhow::Result<Context> {
        self.open_by(Context::open_waiting)
    }

    fn open_by(
        self,
        open: impl FnOnce(&DatabaseUrl, Handlers, &ConnectWait) -> EngineResult<Context>,
    ) -> anyhow::Result<Context> {
        self.make_place()?;
        self.open_at(open)
    }

    fn open_at(
        self,
        open: impl FnOnce(&DatabaseUrl, Handlers, &ConnectWait) -> EngineResult<Context>,
    ) -> anyhow::Result<Context> {
        let (requests, schedules) = (self.command_requests(), self.schedule_reader());
        let handlers = Handlers::new(self.registry, classes_in_use(&self.config, &self.url));
        let mut context = open(&self.url, handlers, &self.wait)?;
        context.announcements = self.config.announcements;
        context.requests = requests.map(Arc::new);
        context.schedule_reader = schedules;
        match (&self.handler.on_behalf_of, &self.handler.token) {
            (Some(token), _) => context.act_for(token)?,
            (None, Some(token)) if !self.is_named && !context.has_run_of(token)? => {
                return Err(no_store_of_run(&self.url).into());
            }
            _ => {}
        }
        context.set_spool(self.spool.as_deref());
        Ok(context)
    }
}

/// The store and the configuration that a completion reads.
pub(crate) struct StoreLocation {
    pub(crate) url: DatabaseUrl,
    pub(crate) classes: Classes,
    pub(crate) exec_enabled: bool,
}

/// Returns where a verb with these options would find them. Creates nothing and prints nothing; returns `None` after any error.
pub(crate) fn look(database: Option<&str>, config: Option<&Path>) -> Option<StoreLocation> {
    let environment = Environment::own().ok()?;
    let config = load(config.or(environment.config.as_deref()), &environment).ok()?;
    let url = match written_address(database, &config, &environment) {
        Some(text) => DatabaseUrl::parse(text).ok()?,
        None => DatabaseUrl::sqlite(&default_store_path(&environment)?),
    };
    let exec_enabled = is_exec_enabled(&config, &url);
    Some(StoreLocation { url, classes: config.classes, exec_enabled })
}

/// Returns true if the caller names the store, or its configuration, with an option or a variable.
pub(crate) const fn names_store(global: &GlobalArgs, environment: &Environment) -> bool {
    let is_database_named = global.database.is_some() || environment.database.is_some();
    is_database_named || global.config.is_some() || environment.config.is_some()
}

fn is_missing(url: &DatabaseUrl) -> bool {
    let is_missing =
        |path: PathBuf| path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    url.path().is_some_and(is_missing)
}

/// Returns the error for a command inside a run that would use another store by mistake.
fn no_store_of_run(url: &DatabaseUrl) -> CliError {
    CliError::no_store(format!("{url} is not the store of the run in which this command was called"))
        .with_hint("name the store: --database URL; a handler's runner executes queue, status, wait, events, cancel, edit and report message for it")
}

/// Returns the address of the database as written.
fn written_address<'a>(option: Option<&'a str>, config: &'a Config, environment: &'a Environment) -> Option<&'a str> {
    option.or(environment.database.as_deref()).or(config.database.as_deref())
}

/// Says where the address of the database is written.
fn source_of_address(option: Option<&str>, config: &Config, environment: &Environment) -> String {
    match (option, &environment.database) {
        (Some(_), _) => "--database sets the address".to_owned(),
        (None, Some(_)) => "TASKQUEUE_DATABASE_URL sets the address".to_owned(),
        (None, None) => format!("`database` in {} sets the address", config.path.display()),
    }
}

/// Returns the address of the database and, for the default store, the directory that it needs. Creates nothing.
fn find_database(
    option: Option<&str>,
    config: &Config,
    environment: &Environment,
    out: &mut Out,
) -> Result<(DatabaseUrl, Option<PathBuf>), CliError> {
    if let Some(text) = written_address(option, config, environment) {
        let url = DatabaseUrl::parse(text).map_err(|error| {
            CliError::from(EngineError::from(error)).with_hint(source_of_address(option, config, environment))
        })?;
        if option.is_some() && url.has_password() {
            out.warn("a password on the command line can be read by every user of this machine; use TASKQUEUE_DATABASE_URL or the configuration");
        }
        return Ok((url, None));
    }
    let path = default_store_path(environment).ok_or_else(|| {
        CliError::usage("no home directory for the default store").with_hint("--database sqlite:///path/to/file")
    })?;
    Ok((DatabaseUrl::sqlite(&path), path.parent().map(Path::to_owned)))
}
