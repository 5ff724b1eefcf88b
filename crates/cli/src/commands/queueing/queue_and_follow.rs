//! Shared by `queue` and `exec`: queues a task and, if requested, runs it or waits for it.

use std::time::Duration;

use anyhow::Context as _;
use chrono::{DateTime, Local, Utc};

use crate::commands::options::task_options::TaskOptions;
use crate::error::{CliError, DONE, FAILED, INTERRUPTED};
use crate::output::Out;
use crate::views::outcome;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::new_task::TaskRequest;
use taskqueue_domain::task::records::{ClaimedRun, RunOutput, Task};
use taskqueue_domain::task::unique::Arrival;
use taskqueue_domain::time::recurrence::{CatchUp, Recurrence};
use taskqueue_domain::time::time_zone::Zone;
use taskqueue_engine::inspect::wait::{self, RanHere, WaitNotice, Waited};
use taskqueue_engine::queueing::queue::{self, ClassCheck};
use taskqueue_engine::running::run_listener::{RunListener, RunOutcome};
use taskqueue_engine::{Context, EngineError};
use taskqueue_engine::{StopSignals, Stream, end_statements_on};
use taskqueue_views::human;

/// What to do about a key that a task of others has.
const KEY_OF_CHILD: &str =
    "leave out --wait, or use a key that only this task uses: --unique \"KEY-$TASKQUEUE_TASK_ID\"";

/// Queues the task, prints its id and, if requested, runs it or waits for it.
pub(crate) fn queue_and_follow(
    ctx: &mut Context,
    options: &TaskOptions,
    request: TaskRequest,
    check: ClassCheck,
    out: &mut Out,
) -> anyhow::Result<u8> {
    let class = request.class.clone();
    let recurrence = recurrence_of(&request);
    let key = request.unique.clone().unwrap_or_default();
    let (queued, scheduled_on) = queue::queue_one(ctx, request, check)?;
    let id = queued.id;
    let follows = options.run || options.wait;
    if follows && queued.arrival == Arrival::Existing {
        ctx.check_key_holder(id, &key).map_err(|error| CliError::from(error).with_hint(KEY_OF_CHILD))?;
    }
    if out.is_json() {
        out.json(&serde_json::json!({
            "id": id, "class": class, "scheduled_on": scheduled_on, "arrival": queued.arrival,
        }))
        .with_context(|| format!("task {id} is queued, but its id cannot be printed"))?;
    } else if !follows {
        out.data(id.to_string()).with_context(|| format!("task {id} is queued, but its id cannot be printed"))?;
    }
    let is_told = !follows && !out.is_json() && (out.is_terminal() || scheduled_on.is_some());
    match queued.arrival {
        Arrival::Existing => out.say(&format!("task {id} has the key \"{key}\" already; nothing was queued")),
        Arrival::Replaced => out.say(&format!("task {id} had the key \"{key}\" and was replaced")),
        Arrival::Queued if is_told => {
            say_queued(ctx, id, &class, scheduled_on, out)?;
            if let (Some(recurrence), Some(first)) = (recurrence, scheduled_on) {
                out.say(&repeats(&recurrence, first));
            }
        }
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

/// Returns the recurrence that this request asks for; `None` if it has none.
fn recurrence_of(request: &TaskRequest) -> Option<Recurrence> {
    let every = request.every.as_deref()?;
    let catch_up = request.catch_up.clone().unwrap_or_else(|| CatchUp::Latest.to_string());
    Recurrence::from_phrase(every, request.time_zone.as_deref().unwrap_or("UTC"), &catch_up).ok()
}

/// Returns the first three planned times of a schedule, on the clock of its zone.
fn repeats(recurrence: &Recurrence, first: DateTime<Utc>) -> String {
    let times = std::iter::successors(Some(first), |last| recurrence.next_after(*last));
    let zone = Zone::named(recurrence.zone());
    let words = |time: DateTime<Utc>| match &zone {
        Some(zone) => time.with_timezone(zone).naive_local().format("%a %F %R").to_string(),
        None => human::instant(time),
    };
    let times: Vec<String> = times.take(3).map(words).collect();
    format!("repeats {} in {}: {}", recurrence.every(), recurrence.zone(), times.join(", "))
}

/// Reports that the task with this key has already finished, before its result is printed.
fn say_over(id: TaskId, why: &str, out: &mut Out) {
    out.say(&format!("task {id} has finished: {why}"));
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

/// Prints the output of the handler, and stores the outcome of its run.
struct Printer<'a> {
    out: &'a mut Out,
    /// The outcome of the run, and its class.
    outcome: Option<(RunOutcome, String)>,
}

impl RunListener for Printer<'_> {
    fn stopping(&mut self, runs: &[RunId], _wait: Duration) {
        outcome::tell_asked_to_end(runs);
    }

    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        self.out.handler_output(stream == Stream::Stderr, bytes);
    }

    fn ended(&mut self, run: &ClaimedRun, outcome: &RunOutcome) {
        self.outcome = Some((outcome.clone(), run.class.to_string()));
    }
}

fn run_here(ctx: &mut Context, id: TaskId, out: &mut Out) -> anyhow::Result<u8> {
    let stop = StopSignals::install()?;
    end_statements_on(ctx.store.url(), &stop, Duration::ZERO);
    let mut listener = Printer { out, outcome: None };
    let mut notices = Vec::new();
    let processed = wait::run_here(ctx, id, &stop, &mut listener, &mut |item| {
        if notices.is_empty() {
            outcome::tell_at_once(&notice_text(item));
        }
        notices.push(item);
    });
    let outcome = listener.outcome.take();
    match (processed, outcome) {
        (Err(EngineError::NotWaiting { status, .. }), _) => {
            out.say(&format!("task {id}: another runner claimed its run (status {status}); waiting for it to finish"));
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

fn notice_text(notices: WaitNotice) -> String {
    match notices {
        WaitNotice::LimitReached { in_use, limit } => {
            format!("waiting for a free runner slot ({in_use} of {limit} in use)")
        }
        WaitNotice::NoRunner => {
            "no runner is alive; `taskqueue tick` in another shell or in cron processes the task".to_owned()
        }
    }
}

fn wait_for(ctx: &mut Context, id: TaskId, out: &mut Out) -> anyhow::Result<u8> {
    let stop = StopSignals::install()?;
    end_statements_on(ctx.store.url(), &stop, Duration::ZERO);
    let waited = wait::wait_for_task(ctx, id, &stop, None, &mut |item| outcome::tell_at_once(&notice_text(item)))?;
    match waited {
        Waited::Stopped | Waited::TooLong => {
            out.say(&format!("stopped waiting; task {id} stays queued"));
            Ok(INTERRUPTED)
        }
        Waited::Ended(ended) => {
            print_outputs(&ended.outputs, out);
            let error_code = ended.run.map(|run| run.error_code).unwrap_or_default();
            Ok(exit_code_of(&ended.task, &error_code))
        }
    }
}

/// Prints the stored output, each stream to its own.
pub(crate) fn print_outputs(outputs: &[RunOutput], out: &mut Out) {
    for output in outputs {
        out.handler_output(output.stream == "stderr", output.content.as_bytes());
    }
}

/// Returns the exit code of a handler that another process ran, as far as the ErrorCode shows it.
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
