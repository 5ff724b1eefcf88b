//! The options that `queue` and `exec` share: when and how a task is processed.

use std::time::Duration;

use clap::Args;

use crate::commands::options::attempt_options::AttemptOptions;
use crate::commands::options::local_zone::local_zone;
use crate::error::CliError;
use taskqueue_domain::run::retention::parse_keep;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::new_task::TaskRequest;
use taskqueue_domain::task::trace::{CorrelationId, Trace};
use taskqueue_domain::task::unique::OnConflict;
use taskqueue_domain::time::when;
use taskqueue_engine::Context;
use taskqueue_engine::config::own_trace;
use taskqueue_engine::queueing::queue;

/// When and how a task is processed.
#[derive(Debug, Args)]
pub(crate) struct TaskOptions {
    #[command(flatten)]
    pub(crate) attempts: AttemptOptions,
    /// Run the task once these tasks have succeeded; may be given more than once, or with several ids
    #[arg(long, value_name = "TASK", value_delimiter = ',')]
    after: Vec<TaskId>,
    /// Run the task once these tasks are finished, whatever their outcome: success, failure, cancelled, expired, quarantined
    #[arg(long, value_name = "TASK", value_delimiter = ',')]
    after_any: Vec<TaskId>,
    /// Allow at most one live task per class with this key
    #[arg(long, value_name = "KEY")]
    unique: Option<String>,
    /// If another task has the key: return that task, replace its contents, or fail [default: return]
    #[arg(long, value_name = "WHAT", requires = "unique")]
    on_conflict: Option<OnConflict>,
    /// Reserve the key for this time, even if the task finishes earlier: 10m, 1d
    #[arg(long, value_name = "DURATION", requires = "unique")]
    unique_for: Option<String>,
    /// Process at most one task with this key at once, of any class; `limit` sets another number. A key with many tasks does not block other keys
    #[arg(long, value_name = "KEY")]
    limit_key: Option<String>,
    /// Tag, such as an account, for `worker claim --tag` and for the filter tag=TAG
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Name for lists and for the filter name=NAME; it need not be unique
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Correlation id, which the handler and all tasks that it queues get too [default: $TASKQUEUE_CORRELATION_ID]
    #[arg(long, value_name = "ID")]
    correlation: Option<CorrelationId>,
    /// Repeat the task: 15m, "mon-fri 9:00", "daily 3:00", @daily, or a cron expression like "0 3 * * *" (03:00 every day)
    #[arg(long, alias = "cron", value_name = "WHEN", conflicts_with_all = ["run", "wait"])]
    every: Option<String>,
    /// Time zone of --every, like Europe/Berlin [default: your own, else UTC]
    #[arg(long, value_name = "ZONE", requires = "every")]
    tz: Option<String>,
    /// How to handle missed times: none, latest, all [default: latest]
    #[arg(long, value_name = "WHICH", requires = "every")]
    catch_up: Option<String>,
    /// If a task has not finished when the next time comes: wait for it, or replace it [default: wait]
    #[arg(long, value_name = "WHAT", requires = "every")]
    overlap: Option<String>,
    /// Name of the user who queues the task [default: your login name]
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    /// Process the task in this process, as a runner that obeys pauses and limits, and exit with the status of the handler
    #[arg(long, conflicts_with_all = ["wait", "at", "delay", "after", "after_any"])]
    pub(crate) run: bool,
    /// Wait until the task has finished, on any runner, and exit with the status of the handler
    #[arg(long)]
    pub(crate) wait: bool,
}

impl TaskOptions {
    /// Returns true if an option was given that a batch takes from its lines. With a rate, the batch takes its start from the
    /// options.
    pub(crate) fn has_task_option(&self, has_rate: bool) -> bool {
        let has_attempt_option =
            if has_rate { self.attempts.is_given_besides_time() } else { self.attempts.is_given() };
        has_attempt_option
            || !self.after.is_empty()
            || !self.after_any.is_empty()
            || self.unique.is_some()
            || self.limit_key.is_some()
            || self.tag.is_some()
            || self.name.is_some()
            || self.every.is_some()
            || self.run
            || self.wait
    }

    /// Returns the trace context and the correlation id: those of the caller's environment, unless the options name others. The
    /// tasks of a schedule are no part of the work that started it, so they get only what the options name.
    pub(crate) fn trace(&self) -> Result<Trace, CliError> {
        let of_caller = if self.every.is_some() { Trace::default() } else { own_trace().map_err(CliError::usage)? };
        Ok(Trace { correlation: self.correlation.clone().or(of_caller.correlation), ..of_caller })
    }

    /// Returns the request, with times computed from the database's clock in the user's time zone.
    pub(crate) fn request(&self, ctx: &mut Context, class: &str, data: Option<String>) -> anyhow::Result<TaskRequest> {
        let scheduled_on = self.attempts.scheduled_on(ctx)?;
        let (keep_secs, keep_results_secs) = self.attempts.keeping(parse_keep)?;
        let mut meta = self.attempts.meta()?;
        self.trace()?.add_to(&mut meta);
        let unique_for_secs = self.unique_for.as_deref().map(|text| queue::whole_secs("unique-for", text)).transpose();
        Ok(TaskRequest {
            class: class.to_owned(),
            data,
            scheduled_on,
            expires: self.attempts.expires(ctx)?,
            max_retries: self.attempts.max_retries,
            timeout_secs: self.attempts.timeout(queue::timeout_secs)?,
            priority: self.attempts.priority,
            backoff: self.attempts.backoff.clone(),
            after: self.after.clone(),
            after_any: self.after_any.clone(),
            unique: self.unique.clone(),
            on_conflict: self.on_conflict,
            unique_for_secs: unique_for_secs.map_err(|message| CliError::usage(format!("--unique-for: {message}")))?,
            limit_key: self.limit_key.clone(),
            tag: self.tag.clone(),
            name: self.name.clone(),
            parent_id: None,
            keep_secs,
            keep_results_secs,
            meta,
            every: self.every.clone(),
            time_zone: self.tz.clone().or_else(|| self.every.as_ref().and_then(|_| local_zone())),
            catch_up: self.catch_up.clone(),
            overlap: self.overlap.clone(),
            queued_by: self.by.clone().unwrap_or_else(|| ctx.me.user.clone()),
        })
    }
}

/// Parses the duration of an option.
pub(crate) fn duration_option(name: &str, text: Option<&str>) -> Result<Option<Duration>, CliError> {
    text.map(when::parse_duration).transpose().map_err(|message| CliError::usage(format!("{name}: {message}")))
}
