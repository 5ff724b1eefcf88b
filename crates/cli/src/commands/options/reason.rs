//! `--reason`, shared by all verbs that store an event about an operator's action.

use clap::Args;

/// Why.
#[derive(Debug, Args)]
pub(crate) struct ReasonArgs {
    /// Reason; `events` shows it
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl ReasonArgs {
    /// Returns the reason as given.
    pub(crate) fn text(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}
