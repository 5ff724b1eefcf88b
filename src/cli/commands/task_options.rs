//! The options that `queue` and `exec` share, and what happens after the task is queued.

use std::time::Duration;

use anyhow::Context as _;
use chrono::{DateTime, Local, Utc};
use clap::Args;

use super::attempt_options::AttemptOptions;
use super::outcome;
use crate::cli::error::{CliError, DONE, FAILED, INTERRUPTED};
use crate::cli::output::{Out, human};
use crate::domain::ids::{RunId, TaskId};
use crate::domain::new_task::TaskRequest;
use crate::domain::records::{ClaimedRun, RunOutput, Task};
use crate::domain::status::TaskStatus;
use crate::domain::unique::{Arrival, OnConflict};
use crate::domain::when;
use crate::engine::StopSignals;
use crate::engine::Stream;
use crate::engine::execute::{RunListener, RunOutcome};
use crate::engine::queue::{self, ClassCheck};
use crate::engine::wait::{self, RanHere, WaitNews, Waited};
use crate::engine::{Context, EngineError};

/// When and how a task is processed.
#[derive(Debug, Args)]
pub(crate) struct TaskOptions {
    #[command(flatten)]
    attempts: AttemptOptions,
    /// Run it once these tasks have succeeded; may be given more than once, or with several ids
    #[arg(long, value_name = "TASK", value_delimiter = ',')]
    after: Vec<TaskId>,
    /// Of the live tasks of its class only one has this key
    #[arg(long, value_name = "KEY")]
    unique: Option<String>,
    /// If another one has it: return that one, replace what it is to do, or fail [default: return]
    #[arg(long, value_name = "WHAT", requires = "unique")]
    on_conflict: Option<OnConflict>,
    /// The key stays taken for this time, even if the task ends before: 10m, 1d
    #[arg(long, value_name = "DURATION", requires = "unique")]
    unique_for: Option<String>,
    /// Of the tasks with this key, of whatever class, only one is processed at once; `limits` says how many instead
    #[arg(long, value_name = "KEY")]
    limit_key: Option<String>,
    /// Process it again and again: a cron expression like "0 3 * * *" (03:00 every day) or @daily
    #[arg(long, value_name = "CRON", conflicts_with_all = ["run", "wait"])]
    every: Option<String>,
    /// The time zone of --every, like Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE", requires = "every")]
    tz: Option<String>,
    /// What becomes of planned times that passed while nothing ran: none, latest, all [default: latest]
    #[arg(long, value_name = "WHICH", requires = "every")]
    catch_up: Option<String>,
    /// Who queues it [default: your login name]
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Option<String>,
    /// Process it in this very process, as a runner under all rules, and exit as the handler did
    #[arg(long, conflicts_with_all = ["wait", "at", "delay", "after"])]
    pub(crate) run: bool,
    /// Wait until it has succeeded or is exhausted, whoever runs it, and exit as the handler did
    #[arg(long)]
    pub(crate) wait: bool,
}

impl TaskOptions {
    /// Whether an option was given that a batch takes from its lines.
    pub(crate) fn has_task_option(&self) -> bool {
        self.attempts.is_given()
            || !self.after.is_empty()
            || self.unique.is_some()
            || self.limit_key.is_some()
            || self.every.is_some()
            || self.run
            || self.wait
    }

    /// The request, with times resolved from the database's clock in the zone of the person at the keyboard.
    pub(crate) fn request(&self, ctx: &mut Context, class: &str, data: Option<String>) -> anyhow::Result<TaskRequest> {
        let scheduled_on = self.attempts.scheduled_on(ctx)?;
        let unique_for_secs = self.unique_for.as_deref().map(|text| queue::whole_secs("unique-for", text)).transpose();
        Ok(TaskRequest {
            class: class.to_owned(),
            data,
            scheduled_on,
            max_retries: self.attempts.max_retries,
            timeout_secs: self.attempts.timeout(queue::timeout_secs)?,
            priority: self.attempts.priority,
            backoff: self.attempts.backoff.clone(),
            after: self.after.clone(),
            unique: self.unique.clone(),
            on_conflict: self.on_conflict,
            unique_for_secs: unique_for_secs.map_err(|message| CliError::usage(format!("--unique-for: {message}")))?,
            limit_key: self.limit_key.clone(),
            every: self.every.clone(),
            time_zone: self.tz.clone(),
            catch_up: self.catch_up.clone(),
            queued_by: self.by.clone().unwrap_or_else(|| ctx.me.user.clone()),
        })
    }
}

/// Queues the task, prints its id and, if asked to, sees it through.
pub(crate) fn queue_and_follow(
    ctx: &mut Context,
    options: &TaskOptions,
    request: TaskRequest,
    check: ClassCheck,
    out: &mut Out,
) -> anyhow::Result<u8> {
    let class = request.class.clone();
    let key = request.unique.clone().unwrap_or_default();
    let (queued, scheduled_on) = queue::queue_one(ctx, request, check)?;
    let id = queued.id;
    let follows = options.run || options.wait;
    if out.is_json() {
        out.json(&serde_json::json!({
            "id": id, "class": class, "scheduled_on": scheduled_on, "arrival": queued.arrival,
        }))
        .with_context(|| format!("task {id} is queued, but its id cannot be told"))?;
    } else if !follows {
        out.data(&id.to_string()).with_context(|| format!("task {id} is queued, but its id cannot be told"))?;
    }
    let is_told = !follows && !out.is_json() && (out.is_terminal() || scheduled_on.is_some());
    match queued.arrival {
        Arrival::Existing => out.say(&format!("task {id} has the key \"{key}\" already; nothing was queued")),
        Arrival::Replaced => out.say(&format!("task {id} had the key \"{key}\" and was replaced")),
        Arrival::Queued if is_told => say_queued(ctx, id, &class, scheduled_on, out)?,
        Arrival::Queued => {}
    }
    match (options.run, options.wait) {
        (true, _) => run_here(ctx, id, out),
        (_, true) => {
            if queued.arrival == Arrival::Existing
                && let Some(why) = wait::why_over(ctx, id)?
            {
                say_over(id, &why, out);
            }
            wait_for(ctx, id, out)
        }
        _ => Ok(DONE),
    }
}

/// Says of a task that had its key and has ended that nothing more happens: what follows is how it ended.
fn say_over(id: TaskId, why: &str, out: &mut Out) {
    out.say(&format!("task {id} is over: {why}"));
}

fn say_queued(
    ctx: &mut Context,
    id: TaskId,
    class: &str,
    scheduled_on: Option<DateTime<Utc>>,
    out: &mut Out,
) -> anyhow::Result<()> {
    let when = match scheduled_on {
        Some(at) => {
            let local = at.with_timezone(&Local).format("%F %T %:z");
            format!("to be processed {} ({local}, {})", human::instant(at), human::relative(at, ctx.now()?))
        }
        None => "due now".to_owned(),
    };
    out.say(&format!("queued task {id} of class {class}, {when}"));
    Ok(())
}

/// Passes the output of the handler through, and keeps what became of its run.
struct PassThrough<'a> {
    out: &'a mut Out,
    /// With the class of the run.
    outcome: Option<(RunOutcome, String)>,
}

impl RunListener for PassThrough<'_> {
    /// What a person runs here is asked to end by the first signal, and may take the time that its class allows.
    fn stopping(&mut self, runs: &[RunId], _wait: Duration) {
        for run_id in runs {
            self.out
                .say(&format!("stopping: run {run_id} was asked to end; the next signal kills it within 2 seconds"));
        }
    }

    fn claimed(&mut self, _run: &ClaimedRun) {}

    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        self.out.pass_through(stream == Stream::Stderr, bytes);
    }

    fn ended(&mut self, run: &ClaimedRun, outcome: &RunOutcome) {
        self.outcome = Some((outcome.clone(), run.class.clone()));
    }
}

fn run_here(ctx: &mut Context, id: TaskId, out: &mut Out) -> anyhow::Result<u8> {
    let stop = StopSignals::install()?;
    let mut listener = PassThrough { out, outcome: None };
    let mut news = Vec::new();
    let processed = wait::run_here(ctx, id, &stop, &mut listener, &mut |item| {
        if news.is_empty() {
            outcome::tell_at_once(&news_text(item));
        }
        news.push(item);
    });
    let outcome = listener.outcome.take();
    match (processed, outcome) {
        (Err(EngineError::NotWaiting { status, .. }), _) => {
            out.say(&format!("task {id}: another runner was first, its run is {status}; waiting for its end"));
            wait_for(ctx, id, out)
        }
        (Err(error @ (EngineError::NotRunnable { .. } | EngineError::Obstructed { .. })), _) => {
            out.say(&format!("task {id} stays queued"));
            Err(error.into())
        }
        (Err(error), _) => Err(error.into()),
        (Ok(_), Some((outcome, class))) => {
            outcome::say_failure(&outcome, &class, id, out);
            Ok(outcome.exit_code)
        }
        (Ok(RanHere::Over(why)), None) => {
            say_over(id, &why, out);
            wait_for(ctx, id, out)
        }
        (Ok(RanHere::Processed(_) | RanHere::Stopped), None) => {
            out.say(&format!("task {id} stays queued"));
            Ok(INTERRUPTED)
        }
    }
}

fn news_text(news: WaitNews) -> String {
    match news {
        WaitNews::LimitReached { in_use, limit } => {
            format!("waiting for a free runner slot ({in_use} of {limit} in use)")
        }
        WaitNews::NoRunner => {
            "no runner is alive; `taskqueue tick` in another shell or in cron processes the task".to_owned()
        }
    }
}

fn wait_for(ctx: &mut Context, id: TaskId, out: &mut Out) -> anyhow::Result<u8> {
    let stop = StopSignals::install()?;
    let waited = wait::wait_for_task(ctx, id, &stop, None, &mut |item| outcome::tell_at_once(&news_text(item)))?;
    match waited {
        Waited::Stopped | Waited::TooLong => {
            out.say(&format!("stopped waiting; task {id} stays queued"));
            Ok(INTERRUPTED)
        }
        Waited::Ended(task, run, outputs) => {
            pass_outputs(&outputs, out);
            let error_code = run.map(|run| run.error_code).unwrap_or_default();
            Ok(exit_code_of(&task, &error_code))
        }
    }
}

/// What the database kept of what a handler wrote, each stream to its own.
pub(super) fn pass_outputs(outputs: &[RunOutput], out: &mut Out) {
    for output in outputs {
        out.kept_output(output.stream == "stderr", &output.content);
    }
}

/// The exit code of a handler that another process ran, as far as the run's ErrorCode tells.
fn exit_code_of(task: &Task, error_code: &str) -> u8 {
    if task.status.is(TaskStatus::Success) {
        return DONE;
    }
    let number = |prefix: &str| error_code.strip_prefix(prefix).and_then(|rest| rest.parse::<u8>().ok());
    match (number("exit:"), number("signal:")) {
        (Some(code), _) => code,
        (_, Some(signal)) => signal.saturating_add(128),
        _ if task.status.is(TaskStatus::Cancelled) => INTERRUPTED,
        _ if error_code == "timeout" => 124,
        _ if error_code == "could-not-start" => 127,
        _ => FAILED,
    }
}

/// The duration of an option.
pub(crate) fn duration_option(name: &str, text: Option<&str>) -> Result<Option<Duration>, CliError> {
    text.map(when::parse_duration).transpose().map_err(|message| CliError::usage(format!("{name}: {message}")))
}
