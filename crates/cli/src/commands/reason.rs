//! `--reason`, the same for every verb that keeps an event of what an operator does.

use clap::Args;

/// Why.
#[derive(Debug, Args)]
pub(crate) struct ReasonArgs {
    /// Why; `events` shows it
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl ReasonArgs {
    /// As it was given.
    pub(crate) fn text(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}
