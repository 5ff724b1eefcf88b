//! A configured class: the program that handles it and its limits. Names may be patterns.

use std::path::PathBuf;
use std::time::Duration;

use wildmatch::WildMatch;

use super::protocol::Protocol;
use crate::handler::command::CommandHandler;
use taskqueue_domain::run::backoff::Backoff;
use taskqueue_domain::run::exit_rules::ExitRules;
use taskqueue_domain::run::retention::Keeping;
use taskqueue_domain::task::choosing::selection::ClassFilter;
use taskqueue_domain::task::task_class::TaskClass;

/// How runs of a class, or of all classes that match a pattern, are handled.
#[derive(Clone, Debug)]
pub struct ClassConfig {
    /// Name, or pattern with `*` and `?`.
    pub name: String,
    /// Its program, never seen by a shell. `{class}` in an argument stands for the class name.
    pub command: CommandHandler,
    /// The longest time without an end or a report; `None` uses the system-wide setting.
    pub timeout: Option<Duration>,
    /// Whether its program is started for each run or kept running.
    pub protocol: Protocol,
    /// What exit codes mean.
    pub exit_rules: ExitRules,
    /// The delays before retries; `None` uses the system-wide setting.
    pub backoff: Option<Backoff>,
    /// How long its tasks and their results are kept unless the task sets it; `None` uses the settings.
    pub keeping: Keeping,
    /// Crashes after which a task is quarantined; `None` uses the system-wide limit.
    pub crash_limit: Option<i32>,
    /// A command that checks whether a class exists; exit code 0 means yes.
    pub exists: Option<Vec<String>>,
    /// Classes besides its own whose tasks its handlers may queue.
    pub may_queue: Vec<ClassFilter>,
    /// The file that defines it.
    pub defined_in: PathBuf,
}

impl ClassConfig {
    /// Returns true if the name is a pattern.
    #[must_use]
    pub fn is_pattern(&self) -> bool {
        self.name.contains(['*', '?'])
    }

    fn matches(&self, class: &TaskClass) -> bool {
        WildMatch::new(&self.name).matches(class)
    }
}

/// The configured classes.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    /// Sorted by length of the name, longest first, so that the most specific pattern is found first.
    configured: Vec<ClassConfig>,
}

impl Classes {
    /// Adds a class.
    ///
    /// # Errors
    /// Returns an error if a class with this name exists already.
    pub fn add(&mut self, class: ClassConfig) -> Result<(), String> {
        if let Some(other) = self.configured.iter().find(|other| other.name == class.name) {
            return Err(format!("class \"{}\" is defined already, in {}", class.name, other.defined_in.display()));
        }
        let place = self.configured.partition_point(|other| other.name.len() >= class.name.len());
        self.configured.insert(place, class);
        Ok(())
    }

    /// Sets the user of all classes that name none.
    pub(super) fn set_default_user(&mut self, user: &str) {
        for class in &mut self.configured {
            class.command.confinement.user.get_or_insert_with(|| user.to_owned());
        }
    }

    /// Returns the configuration for a class: an exact name before a pattern, a longer pattern before a shorter one.
    #[must_use]
    pub fn find(&self, class: &TaskClass) -> Option<&ClassConfig> {
        let exact = self.configured.iter().find(|configured| configured.name == class.as_str());
        exact.or_else(|| self.configured.iter().find(|configured| configured.is_pattern() && configured.matches(class)))
    }

    /// Returns all configured classes, sorted by name.
    #[must_use]
    pub fn by_name(&self) -> Vec<&ClassConfig> {
        let mut classes: Vec<_> = self.configured.iter().collect();
        classes.sort_by(|a, b| a.name.cmp(&b.name));
        classes
    }
}
