//! The JSON shapes of tasks, runs, events and explanations: one shape for each, wherever it occurs. docs/json has the schemas.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::answer::{QueueAnswer, answer, answer_command, held_claim, queue_answer};
use taskqueue_domain::task::records::{Run, Task};
use taskqueue_domain::text::json::on_one_line;
use taskqueue_engine::inspect::diagnosis::explain::{Explanation, QueueExplanation};
use taskqueue_engine::inspect::failures::Failures;
use taskqueue_engine::inspect::status::{Event, Overview, TaskDetail, TaskLine};

/// A JSON object that holds stored JSON as it was written. A [`Value`] would change long numbers and drop repeated keys.
#[derive(Clone, Debug, Default)]
pub struct Object(Vec<(String, Box<RawValue>)>);

impl Object {
    /// Returns an object with the keys of this value, which must be one.
    pub fn of(value: &(impl Serialize + ?Sized)) -> Self {
        let Value::Object(map) = json!(value) else { return Self::default() };
        Self(map.into_iter().map(|(key, value)| (key, raw(&value))).collect())
    }

    /// Sets a key, in its place or at the end.
    #[must_use]
    pub fn with(mut self, key: &str, value: &(impl Serialize + ?Sized)) -> Self {
        match self.0.iter_mut().find(|(known, _)| known == key) {
            Some((_, place)) => *place = raw(value),
            None => self.0.push((key.to_owned(), raw(value))),
        }
        self
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// Every value here has a JSON form.
fn raw(value: &(impl Serialize + ?Sized)) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_default()
}

/// Returns what `status` prints without a task.
pub fn overview_json(overview: &Overview) -> Object {
    let tasks: Vec<Object> = overview.lines.iter().map(line_json).collect();
    Object::of(&json!({
        "schema": "taskqueue.status/1", "now": overview.now, "counts": overview.counts,
        "runner_slots": { "in_use": overview.slots.0, "limit": overview.slots.1 },
        "pauses": overview.pauses, "standstills": overview.standstills, "tasks": null, "has_more": overview.has_more,
        "times": overview.times,
    }))
    .with("tasks", &tasks)
}

/// Returns what `status TASK` prints.
pub fn detail_json(detail: &TaskDetail, now: DateTime<Utc>) -> Object {
    let events: Vec<Object> = detail.events.iter().map(event_json).collect();
    let runs: Vec<Object> = detail.runs.iter().map(|(run, outputs)| run_json(run).with("outputs", outputs)).collect();
    Object::of(&json!({
        "schema": "taskqueue.task/1", "now": now, "task": null, "why": detail.reason, "runs": null, "events": null,
        "prerequisites": detail.prerequisites, "dependants": detail.dependants, "circle": detail.circle,
        "rejected_by": detail.rejected_by, "held_back": detail.held_back, "time_line": detail.time_line,
        "kept_until": detail.kept_until,
    }))
    .with("task", &task_json(&detail.task))
    .with("runs", &runs)
    .with("events", &events)
}

/// Returns what `explain TASK` prints; `ahead` is how far this host's clock is ahead of the database's.
pub fn explanation_json(explanation: &Explanation, ahead: Option<TimeDelta>) -> Object {
    let cause = explanation.cause();
    let attempts: Vec<Value> = explanation.attempts.iter().map(attempt_json).collect();
    Object::of(&json!({
        "schema": "taskqueue.explain/1", "now": explanation.now, "task": null,
        "cause": cause.map(|(condition, why)| json!({ "condition": condition, "why": why })),
        "answer": answer(explanation), "next": explanation.next, "remedy": answer_command(explanation),
        "conditions": explanation.conditions, "blockers": explanation.blockers, "circle": explanation.circle,
        "attempts": attempts, "nearest_classes": explanation.nearest_classes,
        "key_holder": explanation.key_holder, "kept_until": explanation.kept_until, "claim": held_claim(explanation),
        "clock_ahead_secs": ahead.map(|ahead| ahead.num_seconds()),
    }))
    .with("task", &task_json(&explanation.task))
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
pub fn line_json(line: &TaskLine) -> Object {
    let last_run = line.last_run.as_ref().map(run_json);
    Object::default().with("task", &task_json(&line.task)).with("last_run", &last_run).with("why", &line.reason)
}

/// Returns a listed task as one record: its keys, `last_run` and `why`.
pub fn task_record(line: &TaskLine) -> Object {
    task_json(&line.task).with("last_run", &line.last_run.as_ref().map(run_json)).with("why", &line.reason)
}

/// Returns the task with its data as JSON, not as a string that contains JSON.
pub fn task_json(task: &Task) -> Object {
    Object::of(task)
        .with("data", &embedded(&task.data))
        .with("meta", &embedded(task.meta.as_deref().unwrap_or("{}")))
        .with("is_exhausted", &task.is_exhausted())
        .with("is_settled", &task.is_settled())
}

/// Returns the run with its results as JSON.
pub fn run_json(run: &Run) -> Object {
    Object::of(run).with("results", &run.results.as_deref().map(embedded))
}

/// Returns the event with its details as JSON.
pub fn event_json(event: &Event) -> Object {
    Object::of(event).with("details", &embedded(&event.details))
}

/// Returns stored JSON for a line. Text that no [`Value`] can hold stays text: many programs could not read the line.
fn embedded(text: &str) -> Box<RawValue> {
    match serde_json::from_str::<Value>(text) {
        Ok(_) => RawValue::from_string(on_one_line(text).into_owned()).unwrap_or_default(),
        Err(_) => raw(text),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn stored_json_is_shown_as_it_was_written() {
        let shown = |text: &str| serde_json::to_string(&Object::default().with("data", &embedded(text))).unwrap();
        for text in ["18446744073709551617", "{\"a\": 1.50, \"a\": 0.10000000000000000001}", "null"] {
            assert_eq!(shown(text), format!("{{\"data\":{text}}}"));
        }
        assert_eq!(shown("[1,\n\t2]"), "{\"data\":[1,  2]}");
        assert_eq!((shown("1e999"), shown("{")), ("{\"data\":\"1e999\"}".to_owned(), "{\"data\":\"{\"}".to_owned()));
    }

    #[test]
    fn a_key_is_set_in_its_place() {
        let object = Object::of(&json!({ "a": 1, "b": 2 })).with("a", "x").with("c", &embedded("3"));
        assert_eq!(serde_json::to_string(&object).unwrap(), "{\"a\":\"x\",\"b\":2,\"c\":3}");
        assert_eq!(json!(object), json!({ "a": "x", "b": 2, "c": 3 }));
    }
}
