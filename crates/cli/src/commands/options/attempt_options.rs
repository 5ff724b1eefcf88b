//! The options for new and existing tasks: when a task is processed, how often it is retried, and its timeout.

use chrono::{DateTime, Local, Utc};
use clap::Args;

use crate::error::CliError;
use taskqueue_domain::task::expiry::Expiry;
use taskqueue_domain::task::meta::Meta;
use taskqueue_domain::time::when;
use taskqueue_engine::Context;

/// When a task is tried, how often, and for how long.
#[derive(Debug, Args)]
pub(crate) struct AttemptOptions {
    /// Process the task at this time: 2026-11-21T10:00:00Z, "2026-11-21 10:00", "tomorrow 03:00", +30m
    #[arg(long, value_name = "TIME", conflicts_with = "delay")]
    at: Option<String>,
    /// Process the task after this delay: 30m, 2h30m, 1d
    #[arg(long = "in", id = "delay", value_name = "DURATION")]
    delay: Option<String>,
    /// Do not start the task at or after this time: a time like that of --at, or a duration after its own time, like 2h
    #[arg(long, value_name = "WHEN")]
    expires: Option<String>,
    /// Failed attempts after which the task is exhausted [default: the setting TaskQueueMaxRetries]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) max_retries: Option<i64>,
    /// Time an attempt may run without reporting before it times out: 90s, 2h
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// Priority, -1000 to 1000; higher ones run first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) priority: Option<i64>,
    /// Delays before retries: exponential:10s..1h, fixed:30s or list:10s,1m,10m [default: from the class, else the settings]
    #[arg(long, value_name = "BACKOFF")]
    pub(crate) backoff: Option<String>,
    /// Keep the task for this time after it finishes: 12h, 7d, or forever [default: from the class, else the settings]
    #[arg(long, value_name = "DURATION")]
    keep: Option<String>,
    /// Keep the results of each run for this time after its end: 1d, or forever [default: from the class, else the setting]
    #[arg(long, value_name = "DURATION")]
    keep_results: Option<String>,
    /// Metadata; the filter `meta.KEY=VALUE` selects tasks by it; may be given more than once
    #[arg(long, value_name = "KEY=VALUE")]
    meta: Vec<String>,
}

impl AttemptOptions {
    /// Returns true if any of them was given.
    pub(crate) fn is_given(&self) -> bool {
        self.is_given_besides_time() || self.at.is_some() || self.delay.is_some()
    }

    /// Returns true if any of them was given besides `--at` and `--in`.
    pub(crate) fn is_given_besides_time(&self) -> bool {
        self.expires.is_some()
            || self.max_retries.is_some()
            || self.timeout.is_some()
            || self.priority.is_some()
            || self.backoff.is_some()
            || self.keep.is_some()
            || self.keep_results.is_some()
            || !self.meta.is_empty()
    }

    /// Returns the time of `--at` or `--in`, computed from the database's clock in the user's time zone.
    pub(crate) fn scheduled_on(&self, ctx: &mut Context) -> Result<Option<DateTime<Utc>>, CliError> {
        let (option, text) = match (&self.at, &self.delay) {
            (Some(at), _) => ("--at", at.clone()),
            (None, Some(delay)) => ("--in", format!("+{delay}")),
            (None, None) => return Ok(None),
        };
        let now = ctx.now()?.with_timezone(&Local);
        let instant = when::parse_start(&text, &now);
        instant.map(Some).map_err(|message| CliError::usage(format!("{option}: {message}")))
    }

    /// Returns `--expires`.
    pub(crate) fn expires(&self, ctx: &mut Context) -> Result<Option<Expiry>, CliError> {
        let Some(text) = self.expires.as_deref() else { return Ok(None) };
        let now = ctx.now()?.with_timezone(&Local);
        Expiry::parse(text, &now).map(Some).map_err(|message| CliError::usage(format!("--expires: {message}")))
    }

    /// Returns true if `--expires` is this word.
    pub(crate) fn expires_is(&self, word: &str) -> bool {
        self.expires.as_deref() == Some(word)
    }

    /// Returns `--keep` and `--keep-results`, parsed by `read`.
    pub(crate) fn keeping<T>(
        &self,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<(Option<T>, Option<T>), CliError> {
        let option = |name: &str, text: &Option<String>| {
            let read = text.as_deref().map(&read).transpose();
            read.map_err(|message| CliError::usage(format!("{name}: {message}")))
        };
        Ok((option("--keep", &self.keep)?, option("--keep-results", &self.keep_results)?))
    }

    /// Returns the metadata of `--meta`.
    pub(crate) fn meta(&self) -> Result<Meta, CliError> {
        meta_option(&self.meta)
    }

    /// Returns `--timeout`, parsed by `read`.
    pub(crate) fn timeout<T>(&self, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, CliError> {
        let timeout = self.timeout.as_deref().map(read).transpose();
        timeout.map_err(|message| CliError::usage(format!("--timeout: {message}")))
    }
}

/// Parses metadata from the words of an option.
pub(crate) fn meta_option(words: &[String]) -> Result<Meta, CliError> {
    Meta::from_words(words).map_err(|message| {
        CliError::usage(format!("--meta: {message}")).with_hint("write --meta NAME=VALUE, for example --meta order=17")
    })
}
