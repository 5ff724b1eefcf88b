//! The answer of `explain` in one sentence: what a task does, whether it will run again, and when.

use chrono::{DateTime, TimeDelta, Utc};

use crate::human::{count, distance, instant, plural, relative};
use crate::links::key_words;
use crate::words::standstill::{standstill_remedy, standstill_words};
use crate::words::why::{holder, is_or_are, note, remedy, runs, sentence};
use taskqueue_domain::limits::pause::PauseScope;
use taskqueue_domain::task::dependencies::id_circle_words;
use taskqueue_domain::task::records::{HeldClaim, Run, Task};
use taskqueue_engine::inspect::diagnosis::explain::{Explanation, QueueExplanation, explain_counted};
use taskqueue_engine::inspect::status::{Counted, Overview, Reason};
use taskqueue_engine::{Context, EngineResult};

/// A task that meets every condition.
const CAN_RUN: &str = "can run now: the next free runner takes it";

/// Returns the state of a task as a sentence: `Task 17 waits for its time: due in 2h00m, at 2026-11-26T15:00:00Z.`
pub fn answer(explanation: &Explanation) -> String {
    let task = &explanation.task;
    if let Some(circle) = &explanation.circle {
        return format!("Task {} will never run: tasks {} wait for each other.", task.id, id_circle_words(circle));
    }
    let now = explanation.now;
    let words = match explanation.cause() {
        None => CAN_RUN.to_owned(),
        Some((_, reason)) => task_words(reason, task, explanation.last_run.as_ref(), explanation.allowed_retries, now),
    };
    let words = match explanation.blockers.last() {
        Some(last) if matches!(explanation.cause(), Some((_, Reason::WaitsForDependencies { .. }))) => {
            let whom = if explanation.blockers.len() == 1 { "it" } else { "them" };
            format!("{words}; task {} blocks {whom}: {}", last.task_id, sentence(&last.why, None, now))
        }
        _ => words,
    };
    sentence_of(&format!("Task {} {words}", task.id))
}

/// Ends a sentence, whose last words may be those of an error.
pub fn sentence_of(words: &str) -> String {
    let words = words.trim_end();
    if words.ends_with(['.', '!', '?', '…']) { words.to_owned() } else { format!("{words}.") }
}

/// Returns what follows `Task 17 ` or `it `.
fn task_words(reason: &Reason, task: &Task, run: Option<&Run>, allowed_retries: i32, now: DateTime<Utc>) -> String {
    match reason {
        Reason::Running { .. } => running_words(reason, run, now),
        Reason::Lost { .. } => lost_words(reason),
        Reason::NotYet { on, after_error: None } => {
            format!("waits for its time: due {}, at {}", relative(*on, now), instant(*on))
        }
        Reason::NotYet { on, after_error: Some(error) } => format!(
            "failed {} and will be retried {}, at {}{}",
            times(task.failed_retries, allowed_retries),
            relative(*on, now),
            instant(*on),
            after_error("; the last error is ", error)
        ),
        Reason::Exhausted { error, failed_attempts, no_retry_rule } => match no_retry_rule {
            None => format!(
                "will not run again: it failed {}{}",
                times(*failed_attempts, allowed_retries),
                after_error(", last with ", error)
            ),
            Some(rule) => format!(
                "will not run again: it failed{}, and the rule `{rule}` allows no retry",
                after_error(" with ", error)
            ),
        },
        Reason::Quarantined { crashes, error } => format!(
            "will not run again: it crashed {} and is quarantined{}",
            plural(*crashes, "time"),
            after_error("; the last error is ", error)
        ),
        Reason::Unreadable { column, found } => {
            format!("will not run: it is set aside, because its column {column} cannot be read: {found}")
        }
        Reason::Done => format!("succeeded{}; it will not run again", ended(run, now)),
        Reason::Cancelled => format!("was cancelled {}; it will not run", relative(task.updated_on, now)),
        Reason::Expired { on: Some(on) } => format!("will not run: it had to start before {}", instant(*on)),
        Reason::Expired { on: None } => "has expired; it will not run".to_owned(),
        Reason::UnknownStatus => format!("is ignored: a newer version wrote its status {}", task.status),
        _ => waiting_words(reason, task.class.as_str(), now),
    }
}

fn lost_words(reason: &Reason) -> String {
    let Reason::Lost { message, .. } = reason else { return String::new() };
    format!("is not being worked on: {message}; the next create-runs rescues its run")
}

/// Returns what a task waits for that is neither running nor finished.
fn waiting_words(reason: &Reason, class: &str, now: DateTime<Utc>) -> String {
    match reason {
        Reason::WaitsForCreateRuns => {
            "is due and has no run yet: a worker, tick or create-runs creates the run".to_owned()
        }
        Reason::NoRunner => "waits for a runner: no runner is alive".to_owned(),
        Reason::NoRunnerForClass { runners } => {
            format!("waits for a runner: {}, but none for class {class}", alive(*runners))
        }
        Reason::RunnerLimitReached { in_use, limit } => {
            let slots = plural(*in_use, "runner slot");
            format!("waits for a runner: {slots} {} in use, and the limit is {limit}", is_or_are(*in_use))
        }
        Reason::RunnersBusy { slots, before } => format!(
            "waits for a free slot: {} of its class {} busy{}",
            plural(*slots, "runner slot"),
            if *slots == 1 { "is" } else { "are" },
            runs_ahead(*before)
        ),
        Reason::WaitsItsTurn { before } => format!("waits for a runner{}", runs_ahead(*before)),
        Reason::NoHandlerHere => {
            format!("waits for a handler: class {class} has none on this host, and no claimant takes it")
        }
        Reason::ClassHeld { why, until } => {
            format!("waits: class {class} is held here, the next try is {}: {why}", relative(*until, now))
        }
        Reason::Paused { pause } | Reason::RunnersPaused { pause } => {
            let whose = if matches!(pause.scope, PauseScope::Runner(_)) { "its runner" } else { "it" };
            format!("waits because {whose} is paused: {}", note(reason, None, now))
        }
        Reason::ClassIsFull { max_running } => {
            format!("waits for a limit: class {class} may have {} at a time", plural(*max_running, "run"))
        }
        Reason::RateReached { rate, next_on } => {
            format!("waits for a limit: class {class} may start {rate}, the next one {}", relative(*next_on, now))
        }
        Reason::KeyIsFull { key, max_running, holders, .. } => {
            format!("waits for a limit: {}", key_words(key, *max_running, holders))
        }
        Reason::SchedulePaused => "waits because its schedule is paused".to_owned(),
        Reason::NotPlanned { problem: Some(problem) } => {
            format!("will not run: its schedule cannot be read: {problem}")
        }
        // Their notes start with the verb.
        _ => note(reason, None, now),
    }
}

fn running_words(reason: &Reason, run: Option<&Run>, now: DateTime<Utc>) -> String {
    let Reason::Running { process_id, host, claimant, deadline } = reason else { return String::new() };
    let who = holder(claimant.as_deref(), *process_id, host);
    let Some(run) = run else { return format!("is running: {who}") };
    let since = run.started_on.map(|on| format!(" for {}", distance(now - on))).unwrap_or_default();
    let mut words = format!("is running{since}: attempt {}, {who}", run.attempt);
    if let Some(on) = deadline {
        words.push_str(&format!(", deadline {}", relative(*on, now)));
    }
    if run.cancel_requested_on.is_some() {
        words.push_str(&format!("; it was asked to stop: {}", run.cancel_reason));
    } else if !run.progress_message.is_empty() {
        words.push_str(&format!("; {}", run.progress_message));
    }
    words
}

/// Returns ` 5m00s ago, on attempt 2, after 3s`.
fn ended(run: Option<&Run>, now: DateTime<Utc>) -> String {
    let Some((run, on)) = run.and_then(|run| Some((run, run.finished_on?))) else { return String::new() };
    let took = run.started_on.map_or_else(TimeDelta::zero, |started| on - started);
    format!(" {}, on attempt {}, in {}", relative(on, now), run.attempt, distance(took))
}

/// Returns the error with words before it; nothing if the error is not known.
fn after_error(before: &str, error: &str) -> String {
    if error.is_empty() { String::new() } else { format!("{before}{error}") }
}

fn runs_ahead(before: Counted) -> String {
    if before.count > 0 { format!("; {} ahead of it", runs(before)) } else { String::new() }
}

/// Returns `2 of 3 times`.
fn times(failed: i32, allowed: i32) -> String {
    format!("{failed} of {}", plural(allowed.max(failed), "time"))
}

fn alive(runners: usize) -> String {
    if runners == 1 { "1 runner is alive".to_owned() } else { format!("{runners} runners are alive") }
}

/// Why nothing runs, or what runs and what waits, and the command that changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueAnswer {
    /// The sentence.
    pub words: String,
    /// The command.
    pub command: String,
}

/// Answers why nothing runs.
pub fn queue_answer(found: &QueueExplanation) -> QueueAnswer {
    let running = found.counts.processing;
    let start = match running.count {
        0 => "Nothing runs: ".to_owned(),
        1 if !running.or_more => "1 task is running; ".to_owned(),
        _ => format!("{} tasks are running; ", count(running)),
    };
    let (words, command) = blocked(found).unwrap_or_else(|| idle(found));
    QueueAnswer { words: sentence_of(&format!("{start}{words}")), command }
}

/// Returns what holds back due tasks and waiting runs.
fn blocked(found: &QueueExplanation) -> Option<(String, String)> {
    if let Some(standstill) = found.standstills.first() {
        return Some((standstill_words(standstill, found.now), standstill_remedy(standstill)));
    }
    if let Some((task, why)) = found.lost.first() {
        return Some((format!("task {task} {}", lost_words(why)), "taskqueue create-runs".to_owned()));
    }
    // A class that cannot run is more interesting than one that can.
    let first = found.first.iter().find(|first| first.why.is_some()).or(found.first.first())?;
    let words = match &first.why {
        None => CAN_RUN.to_owned(),
        Some(why) => waiting_words(why, &first.class, found.now),
    };
    let command = match &first.why {
        None => Some("taskqueue process-run".to_owned()),
        Some(why) => remedy(why, first.task_id, &first.class),
    };
    let words = format!("task {} ({}) {words}", first.task_id, first.class);
    Some((words, command.unwrap_or_else(|| format!("taskqueue explain {} --verbose", first.task_id))))
}

/// Returns why nothing waits.
fn idle(found: &QueueExplanation) -> (String, String) {
    let counts = &found.counts;
    if let Some(next) = &found.next {
        let when = format!("{}, at {}", relative(next.on, found.now), instant(next.on));
        return (
            format!("the next task is due {when}: task {}", next.task_id),
            format!("taskqueue explain {}", next.task_id),
        );
    }
    let or_more = counts.failed.or_more || counts.timeout.or_more;
    let failed = Counted { count: counts.failed.count + counts.timeout.count, or_more };
    if counts.processing.count > 0 {
        return ("nothing else waits".to_owned(), "taskqueue status status=processing".to_owned());
    }
    if counts.scheduled.count > 0 {
        let words = format!("no task is due; {} scheduled, but without a time", count(counts.scheduled));
        return (words, "taskqueue explain status=scheduled".to_owned());
    }
    if failed.count > 0 {
        let words = format!("no task waits; {} failed and will not be retried", count(failed));
        return (words, "taskqueue failures".to_owned());
    }
    if counts.success.count + counts.cancelled.count + counts.expired.count > 0 {
        return ("every task has finished".to_owned(), "taskqueue status".to_owned());
    }
    ("there are no tasks".to_owned(), "taskqueue help queue".to_owned())
}

/// Returns the answer of `explain` if something waits, nothing runs, and the overview, which is of all classes, does not say why.
///
/// # Errors
/// Returns an error if the database fails.
pub fn why_nothing_runs(ctx: &mut Context, overview: &Overview) -> EngineResult<Option<QueueExplanation>> {
    let counts = &overview.counts;
    let is_stuck = counts.processing.count == 0 && counts.due.count + counts.waiting_runs.count > 0;
    if !is_stuck || !overview.standstills.is_empty() {
        return Ok(None);
    }
    // Counted once: it takes most of the time of `status`.
    explain_counted(ctx, counts.clone(), Vec::new()).map(Some)
}

/// Returns the command that changes the state, or shows more: for a task that waits for others, that of the last one of the
/// chain.
pub fn answer_command(explanation: &Explanation) -> Option<String> {
    let (task, (_, reason)) = (&explanation.task, explanation.cause()?);
    match explanation.blockers.last() {
        _ if explanation.circle.is_some() => Some(format!("taskqueue cancel {}", task.id)),
        Some(last) if matches!(reason, Reason::WaitsForDependencies { .. }) => {
            remedy(&last.why, last.task_id, &last.class)
        }
        _ => remedy(reason, task.id, task.class.as_str()),
    }
}

/// Returns the claim that has the task.
pub fn held_claim(explanation: &Explanation) -> Option<HeldClaim> {
    explanation.last_run.as_ref().and_then(Run::held_claim)
}
