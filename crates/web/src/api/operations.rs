//! The operations of `/api/v1`, each with its description for the OpenAPI document. Schemas are named as in docs/json.

use axum::routing::{MethodRouter, get, post};

use super::{events, tasks, worker};
use crate::app::App;
use crate::route::{Route, route};
use taskqueue_domain::limits::scope::Scope;

/// The largest body that carries data or results.
const DATA_BYTES: usize = 16 << 20;

/// Types of bodies.
const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";
const STREAM: &str = "text/event-stream";

/// An address of the interface.
pub(crate) struct Operation {
    pub(crate) route: Route,
    /// The name of its function in generated clients.
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    /// The schema whose properties are the parameters of the query.
    pub(crate) query: Option<&'static str>,
    /// The schema whose properties are the headers that it takes.
    pub(crate) headers: Option<&'static str>,
    /// The type and the schema of each body that it takes; empty if it takes none.
    pub(crate) bodies: &'static [(&'static str, &'static str)],
    /// The status, the type and the schema of its answer.
    pub(crate) answer: (u16, &'static str, &'static str),
}

const fn read(path: &'static str, handler: fn() -> MethodRouter<App>) -> Route {
    route("GET", path, Some(Scope::Read), handler)
}

const fn change(path: &'static str, may: Scope, handler: fn() -> MethodRouter<App>) -> Route {
    route("POST", path, Some(may), handler)
}

/// Returns an operation that takes nothing and answers with JSON of this schema.
const fn operation(route: Route, name: &'static str, summary: &'static str, schema: &'static str) -> Operation {
    Operation { route, name, summary, query: None, headers: None, bodies: &[], answer: (200, JSON, schema) }
}

impl Operation {
    const fn query(self, schema: &'static str) -> Self {
        Self { query: Some(schema), ..self }
    }

    const fn headers(self, schema: &'static str) -> Self {
        Self { headers: Some(schema), ..self }
    }

    const fn bodies(self, bodies: &'static [(&'static str, &'static str)]) -> Self {
        Self { bodies, ..self }
    }

    const fn answer(self, status: u16, kind: &'static str) -> Self {
        Self { answer: (status, kind, self.answer.2), ..self }
    }
}

/// The table.
pub(crate) const OPERATIONS: &[Operation] = &[
    operation(
        read("/api/v1", || get(tasks::index)),
        "list_routes",
        "List every address of the server, pages too",
        "routes",
    ),
    operation(read("/api/v1/openapi.json", || get(tasks::openapi)), "get_openapi", "Return this document", "document"),
    operation(
        read("/api/v1/status", || get(tasks::status)),
        "get_status",
        "Return counters, pauses and the first tasks",
        "overview",
    ),
    operation(
        read("/api/v1/explanation", || get(tasks::explain_queue)),
        "explain_queue",
        "Explain why no task runs",
        "queue_explanation",
    ),
    operation(read("/api/v1/tasks", || get(tasks::tasks)), "list_tasks", "Return a page of tasks", "task_page")
        .query("task_page_query"),
    operation(
        change("/api/v1/tasks", Scope::Queue, || post(tasks::queue)).checks_class().takes(DATA_BYTES),
        "queue_tasks",
        "Queue one task, or one for each line, all or none",
        "queued_tasks",
    )
    .bodies(&[(JSON, "new_task"), (LINES, "new_tasks")])
    .answer(201, JSON),
    operation(
        read("/api/v1/tasks/{id}", || get(tasks::task)).checks_class(),
        "get_task",
        "Return a task, after a wait until it has finished if one is given",
        "task_document",
    )
    .query("task_query"),
    operation(
        read("/api/v1/tasks/{id}/explanation", || get(tasks::explain)),
        "explain_task",
        "Explain why a task does not run",
        "task_explanation",
    ),
    operation(
        change("/api/v1/tasks/{id}/retry", Scope::Operate, || post(tasks::retry)),
        "retry_task",
        "Retry a task, only while it has a status if one is given",
        "task_answer",
    )
    .query("retry_query"),
    operation(
        change("/api/v1/tasks/{id}/cancel", Scope::Operate, || post(tasks::cancel)),
        "cancel_task",
        "Cancel a task",
        "task_answer",
    ),
    operation(
        change("/api/v1/claims", Scope::Work, || post(worker::claim_runs)).checks_class(),
        "claim_runs",
        "Claim runs, after a wait for the first one if one is given",
        "claimed_runs",
    )
    .bodies(&[(JSON, "claim_request")]),
    operation(
        change("/api/v1/runs/{id}/heartbeat", Scope::Work, || post(worker::heartbeat)).checks_class(),
        "renew_run",
        "Renew the lease of a claimed run, and report its progress",
        "renewed",
    )
    .bodies(&[(JSON, "heartbeat_request")]),
    operation(
        change("/api/v1/runs/{id}/resolve", Scope::Work, || post(worker::resolve_run)).checks_class().takes(DATA_BYTES),
        "resolve_run",
        "End a claimed run; repeated, it is recorded once",
        "resolved",
    )
    .bodies(&[(JSON, "resolve_request")]),
    operation(
        change("/api/v1/runs/{id}/release", Scope::Work, || post(worker::release)).checks_class(),
        "release_run",
        "Release a claimed run without an outcome",
        "resolved",
    )
    .bodies(&[(JSON, "release_request")]),
    operation(
        read("/api/v1/failures", || get(tasks::failures)),
        "list_failures",
        "List failed tasks in groups by class and error",
        "failures",
    ),
    operation(read("/api/v1/schedules", || get(tasks::schedules)), "list_schedules", "List the schedules", "schedules"),
    operation(read("/api/v1/runners", || get(tasks::runners)), "list_runners", "List the newest runners", "runners"),
    operation(read("/api/v1/events", || get(events::newest)), "list_events", "Return the newest events", "events")
        .query("events_query"),
    operation(
        read("/api/v1/events/stream", || get(events::stream)),
        "follow_events",
        "Follow new events",
        "event_stream",
    )
    .query("events_query")
    .answer(200, STREAM)
    .headers("event_stream_headers"),
];
