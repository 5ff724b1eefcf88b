//! Notices and hooks: the tables `[notify]` and `[hooks]`.

use std::path::PathBuf;

use serde::Deserialize;

use super::checks::{check_argv, check_user, in_range};
use taskqueue_domain::monitoring::notice::MAX_EVERY_SECS;
use taskqueue_domain::run::attempt_outcome::AttemptOutcome;

const DEFAULT_EVERY_SECS: i64 = 300;

/// Where notices go and which hooks run. The default is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announcements {
    /// Where notices go about tasks and runs that need an operator.
    pub notify: Option<Notify>,
    /// Whether to print no final failures on standard error where no notification is configured.
    pub is_silent: bool,
    /// The programs to start after runs, by outcome.
    pub hooks: Vec<(AttemptOutcome, Vec<String>)>,
    /// The user that hook programs run as.
    pub hook_user: Option<String>,
}

/// Where notices go: exhausted and quarantined tasks, held classes and stuck runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notify {
    /// A program that reads the message from its standard input; may be empty.
    pub argv: Vec<String>,
    /// A file to which each notice is appended as a line.
    pub log: Option<PathBuf>,
    /// The minimum number of seconds between two messages.
    pub every_secs: i64,
    /// The user that the program runs as.
    pub user: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct NotifyTable {
    argv: Vec<String>,
    log: Option<PathBuf>,
    stderr: Option<bool>,
    every_secs: Option<i64>,
    user: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HooksTable {
    success: Option<Vec<String>>,
    failed: Option<Vec<String>>,
    retry: Option<Vec<String>>,
    user: Option<String>,
}

impl Announcements {
    /// Builds it from the tables of the file; `default_user` is the user at the top of the file.
    pub(super) fn from_tables(
        notify: Option<NotifyTable>,
        hooks: HooksTable,
        default_user: Option<&str>,
    ) -> Result<Self, String> {
        let or_default = |user: Option<String>| user.or_else(|| default_user.map(str::to_owned));
        check_user(hooks.user.as_deref())?;
        let kinds = [
            (AttemptOutcome::Success, hooks.success),
            (AttemptOutcome::Failed, hooks.failed),
            (AttemptOutcome::Retry, hooks.retry),
        ];
        let mut found = Vec::new();
        for (kind, argv) in kinds {
            let Some(argv) = argv else { continue };
            check_argv(&argv).map_err(|why| format!("hooks: {}: {why}", kind.as_str()))?;
            found.push((kind, argv));
        }
        let is_silent = notify.as_ref().is_some_and(|table| table.stderr == Some(false));
        let notify = notify.map(NotifyTable::check).transpose().map_err(|why| format!("notify: {why}"))?.flatten();
        Ok(Self {
            is_silent,
            notify: notify.map(|notify| Notify { user: or_default(notify.user), ..notify }),
            hooks: found,
            hook_user: or_default(hooks.user),
        })
    }

    /// Returns the command of this hook.
    #[must_use]
    pub fn hook(&self, kind: AttemptOutcome) -> Option<&[String]> {
        self.hooks.iter().find(|(of, _)| *of == kind).map(|(_, argv)| argv.as_slice())
    }
}

impl NotifyTable {
    /// Returns `None` if the table only sets whether to print.
    fn check(self) -> Result<Option<Notify>, String> {
        let names_none = self.argv.is_empty() && self.log.is_none();
        match self.stderr {
            Some(_) if names_none && self.every_secs.is_none() && self.user.is_none() => return Ok(None),
            Some(_) => return Err("stderr cannot be combined with other keys".to_owned()),
            None => {}
        }
        if names_none {
            return Err("argv or log is required".to_owned());
        }
        if !self.argv.is_empty() {
            check_argv(&self.argv)?;
        }
        if self.log.as_deref().is_some_and(|log| !log.is_absolute()) {
            return Err("log must be an absolute path".to_owned());
        }
        check_user(self.user.as_deref())?;
        let every_secs = in_range("every_secs", self.every_secs, 0, MAX_EVERY_SECS)?.unwrap_or(DEFAULT_EVERY_SECS);
        Ok(Some(Notify { argv: self.argv, log: self.log, every_secs, user: self.user }))
    }
}
