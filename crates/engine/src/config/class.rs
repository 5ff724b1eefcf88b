//! A configured class: the program that handles it and its limits. Names may be patterns.

use std::path::PathBuf;
use std::time::Duration;

use wildmatch::WildMatch;

use super::protocol::Protocol;
use taskqueue_domain::run::backoff::Backoff;
use taskqueue_domain::run::confinement::Confinement;
use taskqueue_domain::run::exit_rules::ExitRules;
use taskqueue_domain::task::selection::ClassFilter;
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_domain::time::retention::Keeping;

/// How runs of a class, or of all classes that match a pattern, are handled.
#[derive(Clone, Debug)]
pub struct ClassConfig {
    /// Name, or pattern with `*` and `?`.
    pub name: String,
    /// Program and arguments, never seen by a shell. `{class}` in an argument stands for the class name.
    pub argv: Vec<String>,
    /// Working directory; `None` is `/`.
    pub cwd: Option<PathBuf>,
    /// Environment beyond the clean default.
    pub env: Vec<(String, String)>,
    /// Variables of the runner's own environment that are passed on.
    pub pass_env: Vec<String>,
    /// Whose rights it has, and its limits.
    pub confinement: Confinement,
    /// Time without end or report; `None` takes the system-wide one.
    pub timeout: Option<Duration>,
    /// From TERM to KILL.
    pub kill_grace: Duration,
    /// How much of each stream is kept, in bytes.
    pub output_limit_bytes: usize,
    /// Whether its program is started for each run or kept running.
    pub protocol: Protocol,
    /// What exit codes mean.
    pub exit_rules: ExitRules,
    /// The waits before retries; `None` takes the system-wide ones.
    pub backoff: Option<Backoff>,
    /// How long its tasks and their results are kept, where a task itself does not say; `None` takes the settings.
    pub keeping: Keeping,
    /// Crashes after which a task is quarantined; `None` takes the system-wide limit.
    pub crash_limit: Option<i32>,
    /// A program and arguments that say whether a class exists, with exit code 0 if so.
    pub exists: Option<Vec<String>>,
    /// Classes, beside its own, of which its handlers may queue tasks.
    pub may_queue: Vec<ClassFilter>,
    /// The file that defines it.
    pub defined_in: PathBuf,
}

impl ClassConfig {
    /// Whether the name is a pattern.
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
    /// Longer names first, so that the most specific pattern is found first.
    configured: Vec<ClassConfig>,
}

impl Classes {
    /// Adds a class.
    ///
    /// # Errors
    /// The same name is there already.
    pub fn add(&mut self, class: ClassConfig) -> Result<(), String> {
        if let Some(other) = self.configured.iter().find(|other| other.name == class.name) {
            return Err(format!("class \"{}\" is defined already, in {}", class.name, other.defined_in.display()));
        }
        let place = self.configured.partition_point(|other| other.name.len() >= class.name.len());
        self.configured.insert(place, class);
        Ok(())
    }

    /// Names the user of the classes that name none themselves.
    pub(super) fn set_default_user(&mut self, user: &str) {
        for class in &mut self.configured {
            class.confinement.user.get_or_insert_with(|| user.to_owned());
        }
    }

    /// Who handles the class: an exact name before a pattern, a longer pattern before a shorter one.
    #[must_use]
    pub fn find(&self, class: &TaskClass) -> Option<&ClassConfig> {
        let exact = self.configured.iter().find(|configured| configured.name == class.as_str());
        exact.or_else(|| self.configured.iter().find(|configured| configured.is_pattern() && configured.matches(class)))
    }

    /// All of them, by name.
    #[must_use]
    pub fn by_name(&self) -> Vec<&ClassConfig> {
        let mut classes: Vec<_> = self.configured.iter().collect();
        classes.sort_by(|a, b| a.name.cmp(&b.name));
        classes
    }
}
