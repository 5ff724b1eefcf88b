//! The reasons for the states of tasks as text, and remedies.

use chrono::{DateTime, Utc};

use crate::human::{count, instant, plural, relative};
use crate::links::{key_words, waits_for};
use crate::shell_word::shell_word;
use crate::words::pause_words::{pause_words, resume_command};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::{Run, Task};
use taskqueue_domain::text::error_words::error_words;
use taskqueue_engine::inspect::failures::FinalCause;
use taskqueue_engine::inspect::status::{Counted, Reason};

/// Returns the reason column; empty if the status is enough.
pub fn note(reason: &Reason, run: Option<&Run>, now: DateTime<Utc>) -> String {
    match reason {
        Reason::Running { process_id, host, claimant, deadline } => {
            let who = holder(claimant.as_deref(), *process_id, host);
            let end = run.filter(|run| run.cancel_requested_on.is_some());
            let end = end.map(|run| format!("stopping: {}", run.cancel_reason));
            let message = end.or_else(|| run.map(|run| run.progress_message.clone()));
            let message = message.filter(|message| !message.is_empty());
            let words = message.map_or_else(|| who.clone(), |message| format!("{who}: {message}"));
            deadline.map_or_else(|| words.clone(), |on| format!("{words}; {}", deadline_words(on, now)))
        }
        Reason::Lost { message, .. } => format!("{message}; the next create-runs rescues the run"),
        Reason::WaitsForRunner => "waits for a runner".to_owned(),
        Reason::NoRunner => "waits for a runner; no runner is alive".to_owned(),
        Reason::NoRunnerForClass { runners } => {
            format!("waits for a runner; {} but none for its class", live(*runners))
        }
        Reason::RunnerLimitReached { in_use, limit } => {
            let slots = plural(*in_use, "runner slot");
            format!("waits for a runner; {slots} {} in use, the limit is {limit}", is_or_are(*in_use))
        }
        Reason::RunnersPaused { pause } => pause_words(pause, now),
        Reason::RunnersBusy { slots, before } => {
            let behind = if before.count > 0 { format!(", and {} ahead of it", runs(*before)) } else { String::new() };
            format!("waits; {} for its class, busy with other runs{behind}", plural(*slots, "runner slot"))
        }
        Reason::WaitsItsTurn { before } => format!("waits for a runner; {} ahead of it", runs(*before)),
        Reason::NoHandlerHere => "waits; its class has no handler on this host; a claimant can take it".to_owned(),
        Reason::WaitsForClaimant { rejected_by } => waits_for_claimant(rejected_by),
        Reason::ClassHeld { why, until } => format!("class held here, next try {}: {why}", relative(*until, now)),
        Reason::Paused { pause } => pause_words(pause, now),
        Reason::ClassIsFull { max_running } => {
            format!("waits; its class has reached its limit of {max_running} running")
        }
        Reason::RateReached { rate, next_on } => {
            format!("waits; its class has reached its rate of {rate}, next start {}", relative(*next_on, now))
        }
        Reason::KeyIsFull { key, max_running, holders, .. } => {
            format!("waits; {}", key_words(key, *max_running, holders))
        }
        Reason::WaitsForCreateRuns => "due; waits for create-runs or tick".to_owned(),
        Reason::NotYet { after_error: Some(error), .. } => error_words("will be retried", error),
        Reason::NotYet { after_error: None, .. } => String::new(),
        Reason::WaitsForDependencies { count, on } => waits_for(*count, on),
        Reason::NotPlanned { problem: Some(problem) } => format!("not planned: {problem}"),
        Reason::NotPlanned { problem: None } => "waits for create-runs to plan it".to_owned(),
        Reason::SchedulePaused => "its schedule is paused".to_owned(),
        Reason::Quarantined { crashes, error } => {
            let word = if *crashes == 1 { "crash" } else { "crashes" };
            error_words(&format!("not retried, quarantined after {crashes} {word}"), error)
        }
        Reason::Unreadable { column, found } => format!("set aside: the column {column} cannot be read: {found}"),
        Reason::Exhausted { error, no_retry_rule: Some(rule), .. } => {
            format!("{} [{rule}]", error_words("not retried", error))
        }
        Reason::Exhausted { error, no_retry_rule: None, .. } => error_words("not retried, no retry left", error),
        Reason::Done => String::new(),
        Reason::Cancelled => "will not run".to_owned(),
        Reason::Expired { on } => expired_words(*on),
        Reason::UnknownStatus => "ignored: a newer version wrote this status".to_owned(),
    }
}

/// Returns before which time an expired task had to start.
fn expired_words(on: Option<DateTime<Utc>>) -> String {
    on.map_or_else(|| "will not run".to_owned(), |on| format!("had to start before {}", instant(on)))
}

/// Returns when a claim ends unless it is renewed.
pub fn deadline_words(deadline: DateTime<Utc>, now: DateTime<Utc>) -> String {
    format!("deadline {}", relative(deadline, now))
}

/// Names as many claimants as fit in a line.
fn waits_for_claimant(rejected_by: &[String]) -> String {
    const NAMED: usize = 3;
    match rejected_by {
        [] => "waits for a claimant".to_owned(),
        names if names.len() <= NAMED => format!("waits for another claimant; rejected by {}", names.join(", ")),
        names => {
            let first = names[..NAMED].join(", ");
            format!("waits for another claimant; rejected by {first} and {} more", names.len() - NAMED)
        }
    }
}

/// Returns which runner or claimant has a run, and where.
pub fn holder(claimant: Option<&str>, process_id: Option<i64>, host: &str) -> String {
    let who = match (claimant, process_id) {
        (Some(claimant), Some(pid)) => format!("claimant {claimant} (process {pid})"),
        (Some(claimant), None) => format!("claimant {claimant}"),
        (None, Some(pid)) => format!("runner process {pid}"),
        (None, None) => return host.to_owned(),
    };
    // A claimant that uses SQL need not give its host.
    if host.is_empty() { who } else { format!("{who} on {host}") }
}

fn live(runners: usize) -> String {
    if runners == 1 { "1 is alive,".to_owned() } else { format!("{runners} are alive,") }
}

/// Returns until when a finished task is kept.
pub fn kept_words(until: DateTime<Utc>, now: DateTime<Utc>) -> String {
    format!("until {}, {}", instant(until), relative(until, now))
}

/// Returns the verb for this number of things.
pub const fn is_or_are(number: i64) -> &'static str {
    if number == 1 { "is" } else { "are" }
}

/// Formats a number of runs.
pub fn runs(number: Counted) -> String {
    if number.count == 1 && !number.or_more { "1 run is".to_owned() } else { format!("{} runs are", count(number)) }
}

/// Returns in a few words why a failed task is not retried.
pub const fn final_words(why: Option<FinalCause>) -> &'static str {
    match why {
        None => "will be retried",
        Some(FinalCause::NoRetryLeft) => "no retry left",
        Some(FinalCause::NotRetryable) => "not retried",
        Some(FinalCause::Quarantined) => "quarantined",
    }
}

/// Returns the failed attempts since the last success: fewer than FailedRetries if an attempt ruled out a retry.
pub const fn failed_attempts(task: &Task, reason: &Reason) -> i32 {
    match reason {
        Reason::Exhausted { failed_attempts, .. } => *failed_attempts,
        _ => task.failed_retries,
    }
}

/// Returns the reason as a sentence.
pub fn sentence(reason: &Reason, run: Option<&Run>, now: DateTime<Utc>) -> String {
    match reason {
        Reason::Running { .. } => format!("it is running: {}", note(reason, run, now)),
        Reason::NotYet { after_error: None, on } => format!("it becomes due {}", relative(*on, now)),
        Reason::NotYet { after_error: Some(error), on } => {
            let after = if error.is_empty() { String::new() } else { format!(", after {error}") };
            format!("it will be retried {}{after}", relative(*on, now))
        }
        Reason::Done => "it has succeeded".to_owned(),
        Reason::Cancelled => "it was cancelled".to_owned(),
        Reason::Expired { on } => format!("it expired: it {}", expired_words(*on)),
        _ => note(reason, run, now),
    }
}

/// Returns a command that helps, or shows more; `None` if nothing can be done from here.
pub fn remedy(reason: &Reason, id: TaskId, class: &str) -> Option<String> {
    let class_word = shell_word(class);
    Some(match reason {
        Reason::Running { .. } => format!("taskqueue status {id}"),
        Reason::Lost { .. } | Reason::NotPlanned { problem: None } => "taskqueue create-runs".to_owned(),
        Reason::WaitsForCreateRuns => "taskqueue tick".to_owned(),
        Reason::WaitsForRunner | Reason::NoRunner | Reason::WaitsItsTurn { .. } => "taskqueue process-run".to_owned(),
        Reason::NoRunnerForClass { .. } => format!("taskqueue work --class {class_word}"),
        Reason::RunnerLimitReached { .. } | Reason::RunnersBusy { .. } => "taskqueue runner".to_owned(),
        Reason::Paused { pause } | Reason::RunnersPaused { pause } => resume_command(&pause.scope),
        Reason::NoHandlerHere => "taskqueue class".to_owned(),
        Reason::WaitsForClaimant { .. } => format!("taskqueue worker claim --claimant NAME --task {id}"),
        Reason::ClassHeld { .. } => format!("taskqueue class release {class_word}"),
        Reason::ClassIsFull { .. } => {
            format!("taskqueue status {} status=processing", shell_word(&format!("class={class}")))
        }
        Reason::RateReached { .. } | Reason::KeyIsFull { .. } => "taskqueue limit".to_owned(),
        Reason::NotYet { after_error: None, .. } => format!("taskqueue edit {id} --in 0s"),
        Reason::Unreadable { .. } => format!("taskqueue status {id}"),
        Reason::NotYet { after_error: Some(_), .. }
        | Reason::Quarantined { .. }
        | Reason::Exhausted { .. }
        | Reason::Cancelled
        | Reason::Expired { .. } => format!("taskqueue retry {id}"),
        Reason::WaitsForDependencies { on, .. } => {
            let blocking = on.iter().find(|task| task.is_settled).or(on.first())?;
            format!("taskqueue explain {}", blocking.id)
        }
        Reason::NotPlanned { problem: Some(_) } => format!("taskqueue schedule edit {id} --every '0 3 * * *'"),
        Reason::SchedulePaused => format!("taskqueue schedule resume {id}"),
        Reason::Done | Reason::UnknownStatus => return None,
    })
}
