//! `/api/v1`: the shapes of `--json`, for programs. Errors are problem details.

use std::io::Cursor;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use chrono::Utc;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::api::json::JsonAnswer;
use crate::api::worker::LONGEST_WAIT_SECS;
use crate::app::{App, Caller};
use crate::pages::tasks::changes::Change;
use crate::pages::tasks::list::TaskPageQuery;
use crate::pages::tasks::selections::{MOST, page_start, selection};
use crate::serving::problem::Problem;
use taskqueue_domain::limits::scope::Scope;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::choosing::selection::PageStart;
use taskqueue_domain::task::dependencies::LinkedTask;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::trace::Trace;
use taskqueue_engine::change::schedules as recurring;
use taskqueue_engine::inspect::diagnosis::explain::{self, Reason};
use taskqueue_engine::inspect::status::SelectionPage;
use taskqueue_engine::inspect::{failures as failed, status as states};
use taskqueue_engine::queueing::queue::ClassCheck;
use taskqueue_engine::queueing::queue_batch::{BatchDefaults, queue_batch};
use taskqueue_engine::{EngineError, StoreError};
use taskqueue_views::json::{
    Object, detail_json, explanation_json, failures_json, line_json, overview_json, queue_explanation_json,
};

/// How many entries a list has where a program asks for no number.
const USUAL: i64 = 100;

/// How often a request that waits looks at its task.
const LOOK_EVERY: Duration = Duration::from_millis(500);

type Answer = Result<JsonAnswer<Value>, Problem>;
type Shown = Result<JsonAnswer<Object>, Problem>;

/// Lists every address of the server, and the scope that it needs.
pub(crate) async fn index(State(app): State<App>) -> JsonAnswer<Value> {
    JsonAnswer((app.description.routes)())
}

/// Returns the OpenAPI document.
pub(crate) async fn openapi(State(app): State<App>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], (app.description.openapi)())
}

pub(crate) async fn status(State(app): State<App>) -> Shown {
    let seen = app.live.glance().await?;
    // A program must not mistake old figures for new ones.
    seen.problem.map_or_else(|| Ok(JsonAnswer(overview_json(&seen.glance.overview))), Err)
}

pub(crate) async fn explain_queue(caller: Caller) -> Answer {
    let explanation = caller.call(explain::explain_queue).await?;
    Ok(JsonAnswer(queue_explanation_json(&explanation)))
}

pub(crate) async fn tasks(caller: Caller, Query(query): Query<TaskPageQuery>) -> Shown {
    let selection = selection(&caller.app, &query.q)?;
    let (start, limit) = (page_start(query.before, query.after)?, query.limit.unwrap_or(USUAL).clamp(1, MOST));
    let page =
        caller.show(move |ctx| states::select_page(ctx, &selection, start, limit), |page| page_json(&page)).await?;
    Ok(JsonAnswer(page))
}

fn page_json(page: &SelectionPage) -> Object {
    let tasks: Vec<Object> = page.lines.iter().map(line_json).collect();
    let (next_before, next_after) = match page.next {
        Some(PageStart::Before(place)) => (Some(place.id), None),
        Some(PageStart::After(place)) => (None, Some(place.id)),
        None => (None, None),
    };
    Object::of(&json!({
        "schema": "taskqueue.tasks/1", "now": page.now, "tasks": null, "next_before": next_before, "next_after": next_after,
    }))
    .with("tasks", &tasks)
}

/// How long to wait for the end of a task.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WaitLimit {
    wait_secs: u64,
}

/// Returns a task; waits up to `wait_secs` until it has finished.
pub(crate) async fn task(
    caller: Caller,
    Path(id): Path<i64>,
    Query(WaitLimit { wait_secs }): Query<WaitLimit>,
) -> Shown {
    let until = Instant::now() + Duration::from_secs(wait_secs.min(LONGEST_WAIT_SECS));
    loop {
        let (mut detail, now) = caller.call(move |ctx| Ok((states::detail(ctx, TaskId(id))?, ctx.now()?))).await?;
        if let Some(classes) = &caller.login.classes {
            if !classes.contain(detail.task.class.as_str()) {
                // Like a task that does not exist.
                return Err(EngineError::from(StoreError::NotFound(format!("task {id}"))).into());
            }
            let is_other = |linked: &LinkedTask| !linked.class.as_deref().is_some_and(|class| classes.contain(class));
            let awaited = match &mut detail.reason {
                Reason::WaitsForDependencies { on, .. } => on.as_mut_slice(),
                _ => &mut [],
            };
            let linked = detail.prerequisites.iter_mut().chain(&mut detail.dependants).chain(awaited);
            for linked in linked.filter(|linked| is_other(linked)) {
                (linked.class, linked.status) = (None, None);
            }
        }
        if detail.task.is_settled() || Instant::now() >= until {
            return Ok(JsonAnswer(detail_json(&detail, now)));
        }
        loop {
            sleep(LOOK_EVERY).await;
            caller.check().await?;
            // The whole answer is read again only at the end: it can be large.
            if caller.call(move |ctx| states::is_settled(ctx, TaskId(id))).await? || Instant::now() >= until {
                break;
            }
        }
    }
}

pub(crate) async fn explain(caller: Caller, Path(id): Path<i64>) -> Shown {
    let explanation = caller.call(move |ctx| explain::explain_task(ctx, TaskId(id))).await?;
    Ok(JsonAnswer(explanation_json(&explanation, None)))
}

/// Queues the lines of a batch, all or none: one JSON object, or several, each in a line.
pub(crate) async fn queue(caller: Caller, headers: HeaderMap, body: Bytes) -> Result<Response, Problem> {
    let (lines, login) = (lines_of(&headers, &body)?, &caller.login);
    let defaults = BatchDefaults {
        queued_by: format!("web:{}", login.name),
        may_name_users: false,
        may_replace: login.may >= Scope::Operate,
        classes: login.classes.clone(),
        check: if login.may >= Scope::Admin { ClassCheck::KnownHere } else { ClassCheck::NotExec },
        spread: None,
        trace: Trace::default(),
    };
    let queued =
        caller.call(move |ctx| queue_batch(ctx, &mut Cursor::new(lines), &Utc, &defaults, &mut |_, _| {})).await?;
    Ok((StatusCode::CREATED, JsonAnswer(json!({ "schema": "taskqueue.queued/1", "tasks": queued }))).into_response())
}

/// Returns one object in one line, however it was written, and lines as they are.
pub(crate) fn lines_of(headers: &HeaderMap, body: &[u8]) -> Result<String, Problem> {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let text = std::str::from_utf8(body).map_err(|_| Problem::input("the body is not UTF-8"))?;
    match kind.split(';').next().unwrap_or_default().trim() {
        "application/json" => {
            let value: Box<serde_json::value::RawValue> =
                serde_json::from_str(text).map_err(|error| Problem::input(format!("the body is not JSON: {error}")))?;
            // A line break between two values of JSON is the same as a space; within a string there is none.
            Ok(value.get().replace(['\n', '\r'], " "))
        }
        "application/x-ndjson" => Ok(text.to_owned()),
        _ => Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "input",
            "send one task as application/json, or one in each line as application/x-ndjson",
        )),
    }
}

/// Which tasks are retried.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RetryQuery {
    status: Option<String>,
}

/// Retries a task; with `status`, only while it has that status: sent again, the request does not repeat a task that has succeeded.
pub(crate) async fn retry(
    caller: Caller,
    Path(id): Path<i64>,
    Query(RetryQuery { status }): Query<RetryQuery>,
) -> Answer {
    let only = match status {
        Some(status) => vec![TaskStatus::parse(&status).ok_or_else(|| unknown_status(&status))?],
        None => Vec::new(),
    };
    change(&caller, TaskId(id), Change::Retry, only).await
}

fn unknown_status(text: &str) -> Problem {
    let known = TaskStatus::ALL.map(TaskStatus::as_str).join(", ");
    Problem::input(format!("status: \"{text}\" is none of {known}"))
}

pub(crate) async fn cancel(caller: Caller, Path(id): Path<i64>) -> Answer {
    change(&caller, TaskId(id), Change::Cancel, Vec::new()).await
}

async fn change(caller: &Caller, id: TaskId, change: Change, only: Vec<TaskStatus>) -> Answer {
    let answers = caller.call(move |ctx| change.make_one(ctx, id, &only)).await?;
    let Some(answer) = answers.into_iter().next() else {
        return Err(Problem::not_found(format!("there is no task {id}")));
    };
    match (answer.exists, answer.result) {
        (false, _) => Err(Problem::not_found(answer.message)),
        (true, None) => Err(Problem::new(StatusCode::CONFLICT, "refused", answer.message)),
        (true, Some(_)) => {
            let mut answer = json!(answer);
            answer["dry_run"] = json!(false);
            Ok(JsonAnswer(answer))
        }
    }
}

pub(crate) async fn failures(caller: Caller) -> Answer {
    let found = caller.call(|ctx| failed::failures(ctx, None)).await?;
    Ok(JsonAnswer(failures_json(&found, found.groups.len())))
}

pub(crate) async fn schedules(caller: Caller) -> Answer {
    let schedules = caller.call(recurring::list).await?;
    Ok(JsonAnswer(json!({ "schedules": schedules })))
}

pub(crate) async fn runners(caller: Caller) -> Answer {
    let runners = caller.call(|ctx| states::list_runners(ctx, MOST, false)).await?;
    Ok(JsonAnswer(json!({ "runners": runners })))
}
