//! `/api/v1` for workers: claims, heartbeats and ends of runs. The claimant is the login, so no login can act for another one; every
//! call about a run needs the token of its claim, too.

use std::fmt;
use std::time::Duration;

use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::api::json::{JsonAnswer, JsonBody};
use crate::app::Caller;
use crate::logins::login::Login;
use crate::serving::problem::Problem;
use taskqueue_domain::run::backoff::possible_delay_secs;
use taskqueue_domain::run::claimant::ClaimantId;
use taskqueue_domain::run::ending::ReportedError;
use taskqueue_domain::task::choosing::task_choice::TaskChoice;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::task_class::check_class_pattern;
use taskqueue_domain::text::json::check_storable;
use taskqueue_engine::claiming::claim::{ClaimRequest, MAX_COUNT, Offer, claim_without_wait};
use taskqueue_engine::claiming::claimants::{Held, ProgressReport, Resolution, give_back, renew, resolve};
use taskqueue_engine::{Context, EngineError, StoreError};
use taskqueue_views::words::claim_line::{ClaimLine, claim_line};

/// How often a claim that waits asks again. It holds no thread and no connection between.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// The longest wait of a request: shorter than the time limit of requests.
pub(crate) const LONGEST_WAIT_SECS: u64 = 50;

type Answer = Result<JsonAnswer<Value>, Problem>;

/// What a worker wants to claim; everything may be left out.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Claim {
    class: Vec<String>,
    task: Option<i64>,
    unique: Option<String>,
    limit_key: Option<String>,
    tag: Option<String>,
    count: Option<u16>,
    wait_secs: u64,
}

#[derive(Serialize)]
struct Claimed<'a> {
    runs: Vec<ClaimLine<'a>>,
}

/// The token of a claim, and what is reported with it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Heartbeat {
    token: String,
    percents: Option<i32>,
    message: Option<Text>,
}

/// How a run has ended: with results, or with an error.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct End {
    token: String,
    pub(crate) results: Option<Box<RawValue>>,
    error: Option<ClaimantError>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimantError {
    code: Text,
    #[serde(default)]
    message: Text,
    #[serde(default = "yes")]
    retry: bool,
    delay_secs: Option<i64>,
}

/// Why a run is returned.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Return {
    token: String,
    #[serde(default)]
    reason: Text,
    #[serde(default = "yes")]
    reject: bool,
}

/// A text for people. It may quote what is not UTF-8, such as half of a surrogate pair: that is replaced, and the rest is kept.
#[derive(Debug, Default)]
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(TextVisitor)
    }
}

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Text, E> {
        Ok(Text(String::from_utf8_lossy(bytes).into_owned()))
    }
}

const fn yes() -> bool {
    true
}

/// Claims runs; waits up to `wait_secs` for the first one.
pub(crate) async fn claim_runs(caller: Caller, JsonBody(wanted): JsonBody<Claim>) -> Result<Response, Problem> {
    let limit = Instant::now() + Duration::from_secs(wanted.wait_secs.min(LONGEST_WAIT_SECS));
    let request = request_of(wanted, &caller.login)?;
    loop {
        let asked = request.clone();
        let offers = caller.call_or_undo(move |ctx| claim_without_wait(ctx, &asked), release_unsent).await?;
        if !offers.is_empty() || Instant::now() >= limit {
            return Ok(JsonAnswer(Claimed { runs: offers.iter().map(claim_line).collect() }).into_response());
        }
        sleep(ASK_EVERY).await;
        caller.check().await?;
    }
}

/// Releases claimed runs whose worker has gone. A run that cannot be released now is free when its lease expires.
fn release_unsent(ctx: &mut Context, offers: Vec<Offer>) {
    for offer in offers {
        let _ = give_back(ctx, &offer.run);
    }
}

pub(crate) fn request_of(wanted: Claim, login: &Login) -> Result<ClaimRequest, Problem> {
    let claimant: ClaimantId = login.name.parse().map_err(|why: String| Problem::input(why))?;
    for pattern in &wanted.class {
        check_class_pattern(pattern).map_err(|why| Problem::input(format!("class {pattern:?}: {why}")))?;
    }
    let count = wanted.count.unwrap_or(1);
    if count == 0 || count > MAX_COUNT {
        return Err(Problem::input(format!("count: a whole number from 1 to {MAX_COUNT}")));
    }
    let choice = TaskChoice {
        task: wanted.task.map(TaskId),
        unique_key: wanted.unique,
        limit_key: wanted.limit_key,
        tag: wanted.tag,
    };
    choice.check().map_err(Problem::input)?;
    let classes = match &login.classes {
        Some(limit) => limit.narrow(wanted.class).map_err(|outside| {
            Problem::forbidden(format!("class \"{outside}\": {} is limited to {limit}", login.name))
        })?,
        None => wanted.class,
    };
    let count = count.into();
    Ok(ClaimRequest { claimant, classes, choice, count, wait: Duration::ZERO, process: None })
}

/// Renews the lease of a run, and stores its progress.
pub(crate) async fn heartbeat(caller: Caller, Path(run): Path<i64>, JsonBody(body): JsonBody<Heartbeat>) -> Answer {
    let Heartbeat { token, percents, message } = body;
    let held = Held { run_id: RunId(run), token };
    let report = ProgressReport { percents, message: message.map(|text| text.0) };
    check_class(&caller, held.run_id).await?;
    Ok(JsonAnswer(json!(caller.call(move |ctx| renew(ctx, &held, &report)).await?)))
}

/// To a login that is limited to classes, a run of another class is like one that does not exist.
async fn check_class(caller: &Caller, id: RunId) -> Result<(), Problem> {
    let Some(classes) = caller.login.classes.clone() else { return Ok(()) };
    let is_seen = caller.call(move |ctx| Ok(classes.contain(ctx.store.get_run(id)?.class.as_str()))).await?;
    if is_seen { Ok(()) } else { Err(EngineError::from(StoreError::NotFound(format!("run {id}"))).into()) }
}

/// Ends a run.
pub(crate) async fn resolve_run(caller: Caller, Path(run): Path<i64>, JsonBody(body): JsonBody<End>) -> Answer {
    let End { token, results, error } = body;
    let resolution = match (results, error) {
        (Some(_), Some(_)) => return Err(Problem::input("\"results\" and \"error\" exclude each other")),
        (results, None) => Resolution::Success(results.map(|json| results_text(&json)).transpose()?),
        (None, Some(error)) if error.code.0.trim().is_empty() => {
            return Err(Problem::input("the code of the error is empty"));
        }
        (None, Some(error)) => Resolution::Error(ReportedError {
            code: error.code.0,
            message: error.message.0,
            retry: Some(error.retry),
            delay_secs: error.delay_secs.map(possible_delay_secs),
        }),
    };
    end(&caller, Held { run_id: RunId(run), token }, resolution).await
}

pub(crate) fn results_text(json: &RawValue) -> Result<String, Problem> {
    check_storable(json.get()).map_err(|what| Problem::input(format!("the result {what}")))?;
    Ok(json.get().to_owned())
}

/// Returns a run without an outcome: its task is rejected unless `reject` is false.
pub(crate) async fn release(caller: Caller, Path(run): Path<i64>, JsonBody(body): JsonBody<Return>) -> Answer {
    let Return { token, reason: Text(reason), reject } = body;
    let resolution = if reject { Resolution::Rejection(reason) } else { Resolution::Release(reason) };
    end(&caller, Held { run_id: RunId(run), token }, resolution).await
}

async fn end(caller: &Caller, held: Held, resolution: Resolution) -> Answer {
    check_class(caller, held.run_id).await?;
    Ok(JsonAnswer(json!(caller.call(move |ctx| resolve(ctx, &held, &resolution)).await?)))
}
