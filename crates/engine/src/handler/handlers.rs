//! Finds the handler of a class: a Rust type of this program, a configured program, or the built-in `exec`.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{ClassConfig, Classes, CoprocessConfig, Protocol};
use crate::handler::TaskHandler;
use crate::handler::command::{CommandHandler, CommandSource};
use crate::handler::coprocess::{CoprocessHandler, Coprocesses, PING_EVERY};
use crate::handler::overrun::Overrun;
use crate::handler::registry::HandlerRegistry;
use crate::me::Me;
use taskqueue_domain::limits::confinement::Confinement;
use taskqueue_domain::run::backoff::Backoff;
use taskqueue_domain::run::exit_rules::ExitRules;
use taskqueue_domain::run::retention::{KeepOfClass, Keeping};
use taskqueue_domain::served::ServedClasses;
use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::choosing::class_set::ClassSet;
use taskqueue_domain::task::task_class::{EXEC_CLASS, TaskClass};
use taskqueue_domain::text::nearest::nearest_names;
use taskqueue_store::Crash;

/// All classes that this process can execute.
#[derive(Clone, Default)]
pub struct Handlers {
    registry: Arc<HandlerRegistry>,
    in_use: ClassesInUse,
    /// Whether a class must set the user of its handlers.
    must_name_user: bool,
    /// The running coprocesses; shared by all copies of these handlers.
    coprocesses: Arc<Coprocesses>,
}

/// The part of the configuration that handlers are made from.
#[derive(Clone, Debug, Default)]
pub struct ClassesInUse {
    /// The configured classes.
    pub classes: Classes,
    /// Whether `exec` may be used.
    pub exec_enabled: bool,
    /// The user that handlers of `exec` run as.
    pub exec_user: Option<String>,
}

/// The handler of one class.
pub enum ClassHandler<'a> {
    /// A Rust type.
    Rust(&'a Arc<dyn TaskHandler>),
    /// A configured program.
    Command(&'a ClassConfig),
    /// The program that the task's data names.
    Exec,
}

impl Handlers {
    /// Creates the handlers. A Rust type takes precedence over a configured class of the same name.
    #[must_use]
    pub fn new(registry: HandlerRegistry, in_use: ClassesInUse) -> Self {
        Self { registry: Arc::new(registry), in_use, ..Self::default() }
    }

    /// Returns handlers with the same Rust types and coprocesses but other classes, for runs that begin later.
    #[must_use]
    pub(crate) fn configured_anew(&self, in_use: ClassesInUse) -> Self {
        Self { in_use, ..self.clone() }
    }

    /// Ends, as soon as they have no run, the coprocesses that none of these classes would start in the same way.
    pub(crate) fn retire_coprocesses(&self) {
        let kept: Vec<CoprocessHandler> = self
            .configured()
            .by_name()
            .into_iter()
            .filter_map(|class| match class.protocol {
                Protocol::OneShot => None,
                Protocol::Coprocess(config) => self.coprocess_of(class, config).ok(),
            })
            .collect();
        self.coprocesses.retire(&|handler| !kept.contains(handler));
    }

    /// Requires that the configuration sets the user of every handler: others can queue here, and the runner is root.
    #[must_use]
    pub(crate) fn naming_users(self) -> Self {
        Self { must_name_user: true, ..self }
    }

    /// Checks that a program may be started as `user`, or as the runner's own user for `None`.
    ///
    /// # Errors
    /// Returns an error if the configuration must set a user and does not.
    pub(crate) fn check_user(&self, place: &str, user: Option<&str>) -> Result<(), String> {
        if user.is_some() || !self.must_name_user {
            return Ok(());
        }
        Err(format!(
            "could not start: this runner is root and others can queue in this database, so the configuration must set the \
             user of handlers: user = \"NAME\" {place}"
        ))
    }

    /// Returns the program of a configured class.
    ///
    /// # Errors
    /// Returns an error if the configuration must set a user and does not.
    pub fn command_of<'c>(&self, class: &'c ClassConfig) -> Result<&'c CommandHandler, String> {
        let place = format!("in [class.\"{}\"] or at the top of the file", class.name);
        self.check_user(&place, class.command.confinement.user.as_deref())?;
        Ok(&class.command)
    }

    /// Returns the program of a configured class as a coprocess.
    ///
    /// # Errors
    /// Returns the same errors as [`Handlers::command_of`].
    pub fn coprocess_of(&self, class: &ClassConfig, config: CoprocessConfig) -> Result<CoprocessHandler, String> {
        Ok(CoprocessHandler {
            name: class.name.clone(),
            command: self.command_of(class)?.clone(),
            exit_rules: class.exit_rules.clone(),
            config,
            ping_every: PING_EVERY,
        })
    }

    /// Returns the coprocesses. A runner must drain them before it marks itself as finished.
    #[must_use]
    pub const fn coprocesses(&self) -> &Arc<Coprocesses> {
        &self.coprocesses
    }

    /// Returns a command with the limits of `exec`, without a program.
    ///
    /// # Errors
    /// Returns the same errors as [`Handlers::command_of`].
    pub fn exec_template(&self) -> Result<CommandHandler, String> {
        let user = self.in_use.exec_user.clone();
        self.check_user("at the top of the file", user.as_deref())?;
        Ok(CommandHandler {
            argv: Vec::new(),
            source: CommandSource::TaskData,
            cwd: Some("/".into()),
            env: Vec::new(),
            pass_env: Vec::new(),
            confinement: Confinement { user, ..Confinement::default() },
            kill_grace: DEFAULT_KILL_GRACE,
            output_limit_bytes: EXEC_OUTPUT_LIMIT_BYTES,
        })
    }

    /// Returns why handlers of a class cannot be run, if so.
    #[must_use]
    pub fn problem_of(&self, class: &ClassConfig) -> Option<String> {
        self.command_of(class).map_or_else(Some, CommandHandler::problem)
    }

    /// Returns why `exec` can run nothing, if so.
    #[must_use]
    pub fn problem_of_exec(&self) -> Option<String> {
        self.exec_template().map_or_else(Some, |command| command.problem())
    }

    /// Returns the handler of a class; `None` if this host has none.
    #[must_use]
    pub fn find(&self, class: &TaskClass) -> Option<ClassHandler<'_>> {
        if class.as_str() == EXEC_CLASS {
            return self.is_exec_enabled().then_some(ClassHandler::Exec);
        }
        if let Some(handler) = self.registry.find(class) {
            return Some(ClassHandler::Rust(handler));
        }
        self.configured().find(class).map(ClassHandler::Command)
    }

    /// Like `find`, for text that may not be a valid class name.
    #[must_use]
    pub fn find_named(&self, name: &str) -> Option<ClassHandler<'_>> {
        self.find(&name.parse().ok()?)
    }

    /// Returns the classes that a runner executes if it is limited to `only`; an empty `only` means all.
    #[must_use]
    pub(crate) fn served(&self, only: &[String]) -> ServedClasses {
        ServedClasses { known: self.known().map(str::to_owned).collect(), only: only.to_vec() }
    }

    /// Returns the classes with a handler that the predicate accepts.
    pub(crate) fn class_set<'a>(&self, is_accepted: &'a dyn Fn(&TaskClass) -> bool) -> ClassSet<'a> {
        ClassSet::of(self.known(), is_accepted)
    }

    /// Returns the names and patterns that have a handler.
    fn known(&self) -> impl Iterator<Item = &str> {
        let configured = self.configured().by_name().into_iter().map(|class| class.name.as_str());
        let built_in = self.is_exec_enabled().then_some(EXEC_CLASS);
        configured.chain(self.rust_names()).chain(built_in)
    }

    /// Returns the configured classes.
    #[must_use]
    pub const fn configured(&self) -> &Classes {
        &self.in_use.classes
    }

    /// Returns the names of the classes that Rust types handle.
    pub fn rust_names(&self) -> impl Iterator<Item = &str> {
        self.registry.names()
    }

    /// Returns true if `exec` may be used.
    #[must_use]
    pub const fn is_exec_enabled(&self) -> bool {
        self.in_use.exec_enabled
    }

    /// Returns the known names most similar to an unknown one, best first.
    #[must_use]
    pub fn nearest_names(&self, class: &str) -> Vec<String> {
        let known =
            self.configured().by_name().into_iter().map(|configured| configured.name.as_str()).chain(self.rust_names());
        nearest_names(class, known).into_iter().map(str::to_owned).collect()
    }

    /// Returns the timeout of a run of this class, in seconds without an end or a report.
    #[must_use]
    pub fn timeout_secs(&self, class: Option<&TaskClass>, task_timeout_secs: Option<i32>, settings: &Settings) -> i64 {
        if let Some(secs) = task_timeout_secs {
            return i64::from(secs);
        }
        let configured = class.and_then(|class| self.configured().find(class)?.timeout);
        configured.map_or(settings.run_timeout_secs, |timeout| i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX))
    }

    /// Returns the time from TERM to KILL; for a Rust type, from the request to end until its runner gives up on it.
    #[must_use]
    pub fn kill_grace(&self, class: Option<&TaskClass>) -> Duration {
        let Some(class) = class else { return DEFAULT_KILL_GRACE };
        let usual = if self.registry.find(class).is_some() { self.registry.overrun.grace } else { DEFAULT_KILL_GRACE };
        self.configured().find(class).map_or(usual, |configured| configured.command.kill_grace)
    }

    /// Returns what happens to Rust handlers that do not end in time.
    #[must_use]
    pub(crate) fn overrun(&self) -> &Overrun {
        &self.registry.overrun
    }

    /// Returns the backoff in the configuration of this class.
    #[must_use]
    pub fn stated_backoff(&self, class: Option<&TaskClass>) -> Option<Backoff> {
        class.and_then(|class| self.configured().find(class)?.backoff.clone())
    }

    /// Returns the backoff for tasks of this class that set none themselves.
    #[must_use]
    pub fn backoff(&self, class: Option<&TaskClass>, settings: &Settings) -> Backoff {
        self.stated_backoff(class).unwrap_or_else(|| settings.backoff.clone())
    }

    /// Describes a crash of a run of this class, recorded by this process.
    pub(crate) fn crash(&self, me: &Me, class: Option<&TaskClass>, settings: &Settings) -> Crash {
        let limit = class.and_then(|class| self.configured().find(class)?.crash_limit).unwrap_or(settings.crash_limit);
        Crash { limit, actor: me.user.clone(), host: me.host.clone() }
    }

    /// Returns the retention periods in the configured classes; `None` if no class sets any.
    #[must_use]
    pub fn keep_of_class(&self) -> Option<KeepOfClass> {
        let states_any = self.configured().by_name().iter().any(|class| class.keeping != Keeping::default());
        let classes = states_any.then(|| self.configured().clone())?;
        Some(Arc::new(move |name| {
            let class: Option<TaskClass> = name.parse().ok();
            class.and_then(|class| classes.find(&class)).map_or_else(Keeping::default, |class| class.keeping)
        }))
    }

    /// Returns what exit codes of this class mean.
    #[must_use]
    pub fn exit_rules(&self, class: &TaskClass) -> ExitRules {
        if let Some(ClassHandler::Exec) = self.find(class) {
            return ExitRules::of_task_programs();
        }
        self.configured().find(class).map(|configured| configured.exit_rules.clone()).unwrap_or_default()
    }
}

const DEFAULT_KILL_GRACE: Duration = Duration::from_secs(10);
const EXEC_OUTPUT_LIMIT_BYTES: usize = 128 << 10;
