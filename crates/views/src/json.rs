//! The JSON shapes of tasks, runs, events and explanations: one shape for each, wherever it occurs. docs/json has the schemas.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use crate::answer::{QueueAnswer, answer, answer_command, held_claim, queue_answer};
use taskqueue_domain::task::records::{Run, Task};
use taskqueue_engine::inspect::diagnosis::explain::{Explanation, QueueExplanation};
use taskqueue_engine::inspect::failures::Failures;
use taskqueue_engine::inspect::status::{Event, Overview, TaskDetail, TaskLine};

/// Returns what `status` prints without a task.
pub fn overview_json(overview: &Overview) -> Value {
    let tasks: Vec<Value> = overview.lines.iter().map(line_json).collect();
    json!({
        "schema": "taskqueue.status/1", "now": overview.now, "counts": overview.counts,
        "runner_slots": { "in_use": overview.slots.0, "limit": overview.slots.1 },
        "pauses": overview.pauses, "standstills": overview.standstills, "tasks": tasks, "has_more": overview.has_more,
        "times": overview.times,
    })
}

/// Returns what `status TASK` prints.
pub fn detail_json(detail: &TaskDetail, now: DateTime<Utc>) -> Value {
    let events: Vec<Value> = detail.events.iter().map(event_json).collect();
    let runs: Vec<Value> = detail
        .runs
        .iter()
        .map(|(run, outputs)| {
            let mut value = run_json(run);
            value["outputs"] = json!(outputs);
            value
        })
        .collect();
    json!({
        "schema": "taskqueue.task/1", "now": now, "task": task_json(&detail.task), "why": detail.reason,
        "runs": runs, "events": events,
        "prerequisites": detail.prerequisites, "dependants": detail.dependants, "circle": detail.circle,
        "rejected_by": detail.rejected_by, "held_back": detail.held_back, "time_line": detail.time_line,
        "kept_until": detail.kept_until,
    })
}

/// Returns what `explain TASK` prints; `ahead` is how far this host's clock is ahead of the database's.
pub fn explanation_json(explanation: &Explanation, ahead: Option<TimeDelta>) -> Value {
    let cause = explanation.cause();
    let attempts: Vec<Value> = explanation.attempts.iter().map(attempt_json).collect();
    json!({
        "schema": "taskqueue.explain/1", "now": explanation.now, "task": task_json(&explanation.task),
        "cause": cause.map(|(condition, why)| json!({ "condition": condition, "why": why })),
        "answer": answer(explanation), "next": explanation.next, "remedy": answer_command(explanation),
        "conditions": explanation.conditions, "blockers": explanation.blockers, "circle": explanation.circle,
        "attempts": attempts, "nearest_classes": explanation.nearest_classes,
        "key_holder": explanation.key_holder, "kept_until": explanation.kept_until, "claim": held_claim(explanation),
        "clock_ahead_secs": ahead.map(|ahead| ahead.num_seconds()),
    })
}

fn attempt_json(run: &Run) -> Value {
    json!({
        "run_id": run.id, "attempt": run.attempt, "status": run.status, "started_on": run.started_on,
        "finished_on": run.finished_on, "decision": run.decision, "error_code": run.error_code,
        "error_message": run.error_message,
    })
}

/// Returns what `failures` prints, with this many groups.
pub fn failures_json(found: &Failures, shown: usize) -> Value {
    json!({
        "schema": "taskqueue.failures/1", "now": found.now, "groups": found.groups.get(..shown).unwrap_or(&found.groups),
        "looked_at": found.looked_at, "has_more": found.has_more,
    })
}

/// Returns what `explain` prints without a task.
pub fn queue_explanation_json(explanation: &QueueExplanation) -> Value {
    let QueueAnswer { words, command } = queue_answer(explanation);
    json!({
        "schema": "taskqueue.explain-queue/1", "now": explanation.now, "answer": words, "remedy": command,
        "counts": explanation.counts,
        "runner_slots": { "in_use": explanation.slots.0, "limit": explanation.slots.1 },
        "lost": explanation.lost, "first": explanation.first, "next": explanation.next,
    })
}

/// Returns a listed task with its newest run and the reason for its state.
pub fn line_json(line: &TaskLine) -> Value {
    json!({ "task": task_json(&line.task), "last_run": line.last_run.as_ref().map(run_json), "why": line.reason })
}

/// Returns a listed task as one record: its keys, `last_run` and `why`.
pub fn task_record(line: &TaskLine) -> Value {
    let mut record = task_json(&line.task);
    record["last_run"] = line.last_run.as_ref().map_or(Value::Null, run_json);
    record["why"] = json!(line.reason);
    record
}

/// Returns the task with its data as JSON, not as a string that contains JSON.
pub fn task_json(task: &Task) -> Value {
    let mut value = json!(task);
    value["data"] = embedded(&task.data);
    value["meta"] = task.meta.as_deref().map_or_else(|| json!({}), embedded);
    value["is_exhausted"] = json!(task.is_exhausted());
    value["is_settled"] = json!(task.is_settled());
    value
}

/// Returns the run with its results as JSON.
pub fn run_json(run: &Run) -> Value {
    let mut value = json!(run);
    value["results"] = run.results.as_deref().map_or(Value::Null, embedded);
    value
}

/// Returns the event with its details as JSON.
pub fn event_json(event: &Event) -> Value {
    let mut value = json!(event);
    value["details"] = embedded(&event.details);
    value
}

fn embedded(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}
