//! Who handles a class: a Rust type of this program, a configured program, or the built-in `exec`.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{ClassConfig, Classes, CoprocessConfig, Protocol};
use crate::handler::TaskHandler;
use crate::handler::command::{CommandHandler, CommandSource};
use crate::handler::coprocess::{CoprocessHandler, Coprocesses, PING_EVERY};
use crate::handler::overrun::Overrun;
use crate::handler::registry::HandlerRegistry;
use taskqueue_domain::run::backoff::Backoff;
use taskqueue_domain::run::confinement::Confinement;
use taskqueue_domain::run::exit_rules::ExitRules;
use taskqueue_domain::served::ServedClasses;
use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::class_set::ClassSet;
use taskqueue_domain::task::task_class::{EXEC_CLASS, TaskClass};
use taskqueue_domain::text::nearest::nearest_names;
use taskqueue_domain::time::retention::{KeepOfClass, Keeping};

/// All classes that this process can execute.
#[derive(Default)]
pub struct Handlers {
    registry: Arc<HandlerRegistry>,
    classes: Classes,
    exec_enabled: bool,
    /// What handlers of `exec` may do.
    exec: Confinement,
    /// Whether a class must say as whom its handlers run.
    must_name_user: bool,
    /// The programs that are kept running; shared by all who work with these handlers.
    coprocesses: Arc<Coprocesses>,
}

/// Who handles one class.
pub enum Handler<'a> {
    /// A Rust type.
    Rust(&'a Arc<dyn TaskHandler>),
    /// A configured program.
    Command(&'a ClassConfig),
    /// The program that the task's data names.
    Exec,
}

impl Handlers {
    /// A Rust type goes before a configured class of the same name.
    #[must_use]
    pub fn new(registry: HandlerRegistry, classes: Classes, exec_enabled: bool) -> Self {
        Self { registry: Arc::new(registry), classes, exec_enabled, ..Self::default() }
    }

    /// The user that handlers of `exec` run as.
    #[must_use]
    pub fn with_exec_user(self, user: Option<String>) -> Self {
        Self { exec: Confinement { user, ..self.exec }, ..self }
    }

    /// The same Rust types and the same coprocesses with other classes, for runs that begin from now on.
    #[must_use]
    pub(super) fn configured_anew(&self, classes: Classes, exec_enabled: bool) -> Self {
        Self {
            registry: Arc::clone(&self.registry),
            classes,
            exec_enabled,
            exec: Confinement::default(),
            must_name_user: self.must_name_user,
            coprocesses: Arc::clone(&self.coprocesses),
        }
    }

    /// Lets those coprocesses end, once they have no run any more, that none of these classes would start as they are.
    pub(super) fn retire_coprocesses(&self) {
        let kept: Vec<CoprocessHandler> = self
            .classes
            .by_name()
            .into_iter()
            .filter_map(|class| match class.protocol {
                Protocol::OneShot => None,
                Protocol::Coprocess(config) => self.coprocess_of(class, config).ok(),
            })
            .collect();
        self.coprocesses.retire(&|handler| !kept.contains(handler));
    }

    /// From now on nothing runs as the runner's own user unless the configuration names it: others can queue here, and
    /// the runner is root.
    #[must_use]
    pub(super) fn naming_users(self) -> Self {
        Self { must_name_user: true, ..self }
    }

    /// Whether a program may be started as this user, or as ours.
    ///
    /// # Errors
    /// The configuration does not say whom it runs as, and has to.
    pub(super) fn check_user(&self, place: &str, user: Option<&str>) -> Result<(), String> {
        if user.is_some() || !self.must_name_user {
            return Ok(());
        }
        Err(format!(
            "could not start: this runner is root and others can queue in this database, so the configuration must say whom \
             handlers run as: user = \"NAME\" {place}"
        ))
    }

    /// The program of a configured class, ready to be run.
    ///
    /// # Errors
    /// The configuration does not say whom it runs as, and has to.
    pub fn command_of(&self, class: &ClassConfig) -> Result<CommandHandler, String> {
        let place = format!("in [class.\"{}\"] or at the top of the file", class.name);
        self.check_user(&place, class.confinement.user.as_deref())?;
        Ok(CommandHandler {
            argv: class.argv.clone(),
            source: CommandSource::Configuration,
            // The directory in which cron or a person happened to start us must not matter.
            cwd: Some(class.cwd.clone().unwrap_or_else(|| "/".into())),
            env: class.env.clone(),
            pass_env: class.pass_env.clone(),
            confinement: class.confinement.clone(),
            kill_grace: class.kill_grace,
            output_limit_bytes: class.output_limit_bytes,
        })
    }

    /// The program of a configured class that is kept running.
    ///
    /// # Errors
    /// As for [`Handlers::command_of`].
    pub fn coprocess_of(&self, class: &ClassConfig, config: CoprocessConfig) -> Result<CoprocessHandler, String> {
        Ok(CoprocessHandler {
            name: class.name.clone(),
            command: self.command_of(class)?,
            exit_rules: class.exit_rules.clone(),
            start_timeout: config.start_timeout,
            max_runs: config.max_runs,
            max_age: config.max_age,
            max_rss_bytes: config.max_rss_bytes,
            ping_every: PING_EVERY,
        })
    }

    /// The programs that are kept running. Whoever has processed runs drains them before it says that it has finished.
    #[must_use]
    pub const fn coprocesses(&self) -> &Arc<Coprocesses> {
        &self.coprocesses
    }

    /// The limits of `exec`, to be filled from the task's data.
    ///
    /// # Errors
    /// As for [`Handlers::command_of`].
    pub fn exec_template(&self) -> Result<CommandHandler, String> {
        self.check_user("at the top of the file", self.exec.user.as_deref())?;
        Ok(CommandHandler {
            argv: Vec::new(),
            source: CommandSource::TaskData,
            cwd: Some("/".into()),
            env: Vec::new(),
            pass_env: Vec::new(),
            confinement: self.exec.clone(),
            kill_grace: DEFAULT_KILL_GRACE,
            output_limit_bytes: EXEC_OUTPUT_LIMIT_BYTES,
        })
    }

    /// Why handlers of a class cannot be run, if so.
    #[must_use]
    pub fn problem_of(&self, class: &ClassConfig) -> Option<String> {
        self.command_of(class).map_or_else(Some, |command| command.problem())
    }

    /// Why nothing can be run by `exec`, if so.
    #[must_use]
    pub fn problem_of_exec(&self) -> Option<String> {
        self.exec_template().map_or_else(Some, |command| command.problem())
    }

    /// Who handles the class; `None` when nobody here does.
    #[must_use]
    pub fn find(&self, class: &TaskClass) -> Option<Handler<'_>> {
        if class.as_str() == EXEC_CLASS {
            return self.exec_enabled.then_some(Handler::Exec);
        }
        if let Some(handler) = self.registry.find(class) {
            return Some(Handler::Rust(handler));
        }
        self.classes.find(class).map(Handler::Command)
    }

    /// The same for text that may be the name of no class.
    #[must_use]
    pub fn find_named(&self, name: &str) -> Option<Handler<'_>> {
        self.find(&name.parse().ok()?)
    }

    /// The classes that a runner executes that takes only these, or all where none are named.
    #[must_use]
    pub(super) fn served(&self, only: &[String]) -> ServedClasses {
        ServedClasses { known: self.known().map(str::to_owned).collect(), only: only.to_vec() }
    }

    /// Those of the classes with a handler that the predicate accepts.
    pub(super) fn class_set<'a>(&self, is_accepted: &'a dyn Fn(&TaskClass) -> bool) -> ClassSet<'a> {
        ClassSet::of(self.known(), is_accepted)
    }

    /// The names and patterns that have a handler.
    fn known(&self) -> impl Iterator<Item = &str> {
        let configured = self.classes.by_name().into_iter().map(|class| class.name.as_str());
        let built_in = self.exec_enabled.then_some(EXEC_CLASS);
        configured.chain(self.rust_names()).chain(built_in)
    }

    /// The configured classes.
    #[must_use]
    pub const fn configured(&self) -> &Classes {
        &self.classes
    }

    /// The names of the classes that Rust types handle.
    pub fn rust_names(&self) -> impl Iterator<Item = &str> {
        self.registry.names()
    }

    /// Whether `exec` may be used.
    #[must_use]
    pub const fn is_exec_enabled(&self) -> bool {
        self.exec_enabled
    }

    /// The known names that are nearest to an unknown one, best first.
    #[must_use]
    pub fn nearest_names(&self, class: &str) -> Vec<String> {
        let known =
            self.classes.by_name().into_iter().map(|configured| configured.name.as_str()).chain(self.rust_names());
        nearest_names(class, known).into_iter().map(str::to_owned).collect()
    }

    /// Seconds without end or report after which a run of this class times out.
    #[must_use]
    pub fn timeout_secs(&self, class: Option<&TaskClass>, task_timeout_secs: Option<i32>, settings: &Settings) -> i64 {
        if let Some(secs) = task_timeout_secs {
            return i64::from(secs);
        }
        let configured = class.and_then(|class| self.classes.find(class)?.timeout);
        configured.map_or(settings.run_timeout_secs, |timeout| i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX))
    }

    /// From TERM to KILL; for a Rust type, from the moment at which it is asked to end until its runner gives up on it.
    #[must_use]
    pub fn kill_grace(&self, class: Option<&TaskClass>) -> Duration {
        let Some(class) = class else { return DEFAULT_KILL_GRACE };
        let usual = if self.registry.find(class).is_some() { self.registry.overrun.grace } else { DEFAULT_KILL_GRACE };
        self.classes.find(class).map_or(usual, |configured| configured.kill_grace)
    }

    /// What happens to Rust types that do not end in time.
    #[must_use]
    pub(crate) fn overrun(&self) -> &Overrun {
        &self.registry.overrun
    }

    /// The backoff that the configuration of this class states.
    #[must_use]
    pub fn stated_backoff(&self, class: Option<&TaskClass>) -> Option<Backoff> {
        class.and_then(|class| self.classes.find(class)?.backoff.clone())
    }

    /// How long failed tasks of this class wait, where the task itself does not say.
    #[must_use]
    pub fn backoff(&self, class: Option<&TaskClass>, settings: &Settings) -> Backoff {
        self.stated_backoff(class).unwrap_or_else(|| settings.backoff.clone())
    }

    /// After how many crashes a task of this class is quarantined.
    #[must_use]
    pub fn crash_limit(&self, class: Option<&TaskClass>, settings: &Settings) -> i32 {
        class.and_then(|class| self.classes.find(class)?.crash_limit).unwrap_or(settings.crash_limit)
    }

    /// What the configured classes state about how long their tasks are kept; `None` where none states anything.
    #[must_use]
    pub fn keep_of_class(&self) -> Option<KeepOfClass> {
        let states_any = self.classes.by_name().iter().any(|class| class.keeping != Keeping::default());
        let classes = states_any.then(|| self.classes.clone())?;
        Some(Arc::new(move |name| {
            let class: Option<TaskClass> = name.parse().ok();
            class.and_then(|class| classes.find(&class)).map_or_else(Keeping::default, |class| class.keeping)
        }))
    }

    /// What exit codes of this class mean.
    #[must_use]
    pub fn exit_rules(&self, class: &TaskClass) -> ExitRules {
        if let Some(Handler::Exec) = self.find(class) {
            return ExitRules::of_task_programs();
        }
        self.classes.find(class).map(|configured| configured.exit_rules.clone()).unwrap_or_default()
    }
}

const DEFAULT_KILL_GRACE: Duration = Duration::from_secs(10);
const EXEC_OUTPUT_LIMIT_BYTES: usize = 128 << 10;
