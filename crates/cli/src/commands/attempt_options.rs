//! The options that a task has whether it is new or there already: when it is tried, how often, and for how long.

use chrono::{DateTime, Local, Utc};
use clap::Args;

use crate::error::CliError;
use taskqueue_domain::task::meta::Meta;
use taskqueue_domain::time::when;
use taskqueue_engine::Context;

/// When a task is tried, how often, and for how long.
#[derive(Debug, Args)]
pub(crate) struct AttemptOptions {
    /// Process it at this time: 2026-11-21T10:00:00Z, "2026-11-21 10:00", "tomorrow 03:00", +30m
    #[arg(long, value_name = "TIME", conflicts_with = "delay")]
    at: Option<String>,
    /// Process it after this time: 30m, 2h30m, 1d
    #[arg(long = "in", id = "delay", value_name = "DURATION")]
    delay: Option<String>,
    /// Failed attempts before it is exhausted [default: the setting TaskQueueMaxRetries]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) max_retries: Option<i64>,
    /// Time without end or report after which an attempt times out: 90s, 2h
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// Higher first, -1000 to 1000
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) priority: Option<i64>,
    /// Waits before retries: exponential:10s..1h, fixed:30s or list:10s,1m,10m [default: those of the class, or the settings]
    #[arg(long, value_name = "BACKOFF")]
    pub(super) backoff: Option<String>,
    /// Keep it for this time after it is over: 12h, 7d, or forever [default: that of the class, or the settings]
    #[arg(long, value_name = "DURATION")]
    keep: Option<String>,
    /// Keep the results of its runs for this time after each ended: 1d, or forever [default: that of the class, or the setting]
    #[arg(long, value_name = "DURATION")]
    keep_results: Option<String>,
    /// Metadata to find it by: `meta.KEY=VALUE` selects it; may be given more than once
    #[arg(long, value_name = "KEY=VALUE")]
    meta: Vec<String>,
}

impl AttemptOptions {
    /// Whether any of them was given.
    pub(super) fn is_given(&self) -> bool {
        self.at.is_some()
            || self.delay.is_some()
            || self.max_retries.is_some()
            || self.timeout.is_some()
            || self.priority.is_some()
            || self.backoff.is_some()
            || self.keep.is_some()
            || self.keep_results.is_some()
            || !self.meta.is_empty()
    }

    /// What `--at` or `--in` says, from the database's clock in the zone of the person at the keyboard.
    pub(super) fn scheduled_on(&self, ctx: &mut Context) -> Result<Option<DateTime<Utc>>, CliError> {
        let (option, text) = match (&self.at, &self.delay) {
            (Some(at), _) => ("--at", at.clone()),
            (None, Some(delay)) => ("--in", format!("+{delay}")),
            (None, None) => return Ok(None),
        };
        let now = ctx.now()?.with_timezone(&Local);
        let instant = when::parse_start(&text, &now);
        instant.map(Some).map_err(|message| CliError::usage(format!("{option}: {message}")))
    }

    /// What `--keep` and `--keep-results` say, as `read` reads them.
    pub(super) fn keeping<T>(
        &self,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<(Option<T>, Option<T>), CliError> {
        let option = |name: &str, text: &Option<String>| {
            let read = text.as_deref().map(&read).transpose();
            read.map_err(|message| CliError::usage(format!("{name}: {message}")))
        };
        Ok((option("--keep", &self.keep)?, option("--keep-results", &self.keep_results)?))
    }

    /// What `--meta` says.
    pub(super) fn meta(&self) -> Result<Meta, CliError> {
        meta_option(&self.meta)
    }

    /// What `--timeout` says, as `read` reads it.
    pub(super) fn timeout<T>(&self, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, CliError> {
        let timeout = self.timeout.as_deref().map(read).transpose();
        timeout.map_err(|message| CliError::usage(format!("--timeout: {message}")))
    }
}

/// Metadata as options name it.
pub(super) fn meta_option(words: &[String]) -> Result<Meta, CliError> {
    Meta::from_words(words).map_err(|message| {
        CliError::usage(format!("--meta: {message}")).with_hint("write a name and a text: --meta order=17")
    })
}
