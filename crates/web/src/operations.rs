//! The operations of `/api/v1`, each with its description for the OpenAPI document. Schemas are named as in docs/json.

use axum::extract::DefaultBodyLimit;
use axum::routing::{MethodRouter, get, post};

use crate::app::App;
use crate::routes::{Route, route};
use crate::{api, events, openapi, worker};
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

/// The table.
pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        route: read("/api/v1", || get(api::index)),
        name: "list_routes",
        summary: "List every address of the server, pages too",
        query: None,
        bodies: &[],
        answer: (200, JSON, "routes"),
    },
    Operation {
        route: read("/api/v1/openapi.json", || get(openapi::document)),
        name: "get_openapi",
        summary: "Return this document",
        query: None,
        bodies: &[],
        answer: (200, JSON, "document"),
    },
    Operation {
        route: read("/api/v1/status", || get(api::status)),
        name: "get_status",
        summary: "Return counters, pauses and the first tasks",
        query: None,
        bodies: &[],
        answer: (200, JSON, "overview"),
    },
    Operation {
        route: read("/api/v1/explanation", || get(api::explain_queue)),
        name: "explain_queue",
        summary: "Explain why no task runs",
        query: None,
        bodies: &[],
        answer: (200, JSON, "queue_explanation"),
    },
    Operation {
        route: read("/api/v1/tasks", || get(api::tasks)),
        name: "list_tasks",
        summary: "Return a page of tasks, newest first",
        query: Some("task_page_query"),
        bodies: &[],
        answer: (200, JSON, "task_page"),
    },
    Operation {
        route: change("/api/v1/tasks", Scope::Queue, || post(api::queue).layer(DefaultBodyLimit::max(DATA_BYTES)))
            .checks_class(),
        name: "queue_tasks",
        summary: "Queue one task, or one for each line, all or none",
        query: None,
        bodies: &[(JSON, "new_task"), (LINES, "new_tasks")],
        answer: (201, JSON, "queued_tasks"),
    },
    Operation {
        route: read("/api/v1/tasks/{id}", || get(api::task)).checks_class(),
        name: "get_task",
        summary: "Return a task, after a wait until it has finished if one is given",
        query: Some("task_query"),
        bodies: &[],
        answer: (200, JSON, "task_document"),
    },
    Operation {
        route: read("/api/v1/tasks/{id}/explanation", || get(api::explain)),
        name: "explain_task",
        summary: "Explain why a task does not run",
        query: None,
        bodies: &[],
        answer: (200, JSON, "task_explanation"),
    },
    Operation {
        route: change("/api/v1/tasks/{id}/retry", Scope::Operate, || post(api::retry)),
        name: "retry_task",
        summary: "Retry a task",
        query: None,
        bodies: &[],
        answer: (200, JSON, "task_answer"),
    },
    Operation {
        route: change("/api/v1/tasks/{id}/cancel", Scope::Operate, || post(api::cancel)),
        name: "cancel_task",
        summary: "Cancel a task",
        query: None,
        bodies: &[],
        answer: (200, JSON, "task_answer"),
    },
    Operation {
        route: change("/api/v1/claims", Scope::Work, || post(worker::claim_runs)).checks_class(),
        name: "claim_runs",
        summary: "Claim runs, after a wait for the first one if one is given",
        query: None,
        bodies: &[(JSON, "claim_request")],
        answer: (200, JSON, "claimed_runs"),
    },
    Operation {
        route: change("/api/v1/runs/{id}/heartbeat", Scope::Work, || post(worker::heartbeat)).checks_class(),
        name: "renew_run",
        summary: "Renew the lease of a claimed run, and report its progress",
        query: None,
        bodies: &[(JSON, "heartbeat_request")],
        answer: (200, JSON, "renewed"),
    },
    Operation {
        route: change("/api/v1/runs/{id}/resolve", Scope::Work, || {
            post(worker::resolve_run).layer(DefaultBodyLimit::max(DATA_BYTES))
        })
        .checks_class(),
        name: "resolve_run",
        summary: "End a claimed run; repeated, it is recorded once",
        query: None,
        bodies: &[(JSON, "resolve_request")],
        answer: (200, JSON, "resolved"),
    },
    Operation {
        route: change("/api/v1/runs/{id}/release", Scope::Work, || post(worker::release)).checks_class(),
        name: "release_run",
        summary: "Return a claimed run without an outcome",
        query: None,
        bodies: &[(JSON, "release_request")],
        answer: (200, JSON, "resolved"),
    },
    Operation {
        route: read("/api/v1/failures", || get(api::failures)),
        name: "list_failures",
        summary: "List failed tasks in groups by class and error",
        query: None,
        bodies: &[],
        answer: (200, JSON, "failures"),
    },
    Operation {
        route: read("/api/v1/schedules", || get(api::schedules)),
        name: "list_schedules",
        summary: "List the schedules",
        query: None,
        bodies: &[],
        answer: (200, JSON, "schedules"),
    },
    Operation {
        route: read("/api/v1/runners", || get(api::runners)),
        name: "list_runners",
        summary: "List the newest runners",
        query: None,
        bodies: &[],
        answer: (200, JSON, "runners"),
    },
    Operation {
        route: read("/api/v1/events", || get(events::newest)),
        name: "list_events",
        summary: "Return the newest events",
        query: Some("events_query"),
        bodies: &[],
        answer: (200, JSON, "events"),
    },
    Operation {
        route: read("/api/v1/events/stream", || get(events::stream)),
        name: "follow_events",
        summary: "Follow new events; the header Last-Event-ID resumes after that event",
        query: Some("events_query"),
        bodies: &[],
        answer: (200, STREAM, "event_stream"),
    },
];
