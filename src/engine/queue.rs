//! `queue`: validates and inserts tasks (the scheme's queueTask).

use chrono::{DateTime, TimeZone, Utc};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Context, EngineError, EngineResult};
use crate::domain::ids::TaskId;
use crate::domain::new_task::{NewTask, TaskRequest};
use crate::domain::settings::Settings;
use crate::domain::task_class::EXEC_CLASS;
use crate::domain::when;
use crate::handler::exec::ExecRequest;

/// Which classes are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassCheck {
    /// Those that can be executed here.
    KnownHere,
    /// Any well-formed name: another host may know it.
    AnyName,
}

/// One line of a batch, as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchLine<'a> {
    class: String,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    at: Option<String>,
    #[serde(rename = "in")]
    delay: Option<String>,
    max_retries: Option<i64>,
    timeout: Option<String>,
    priority: Option<i64>,
    backoff: Option<String>,
    every: Option<String>,
    tz: Option<String>,
    catch_up: Option<String>,
    by: Option<String>,
}

/// Queues one task and returns its id.
///
/// # Errors
/// [`EngineError::Input`], [`EngineError::UnknownClass`], [`EngineError::ExecIsOff`], or the database's.
pub fn queue_task(ctx: &mut Context, request: TaskRequest, check: ClassCheck) -> EngineResult<TaskId> {
    queue_at(ctx, request, check).map(|(id, _)| id)
}

/// Queues one task and returns its id and when it is to be processed, unless that is now.
///
/// # Errors
/// Those of [`queue_task`].
pub fn queue_at(
    ctx: &mut Context,
    request: TaskRequest,
    check: ClassCheck,
) -> EngineResult<(TaskId, Option<DateTime<Utc>>)> {
    let settings = ctx.store.settings()?;
    let mut task = check_request(ctx, request, check, &settings)?;
    if task.recurrence.is_some() {
        task = task.planned(ctx.store.now()?).map_err(EngineError::Input)?;
    }
    fault_point!("queue.task_checked");
    let ids = ctx.store.insert_tasks(std::slice::from_ref(&task), &mut |_| {})?;
    let id = ids.first().ok_or_else(|| EngineError::Input("the database inserted nothing".to_owned()))?;
    Ok((*id, task.scheduled_on))
}

/// Queues the tasks of newline-delimited JSON, all or none. Blank lines are passed over. Local times are read in `zone`.
/// `inserted` hears how many are in the transaction so far, and of how many.
///
/// # Errors
/// [`EngineError::Input`] with the number of the first bad line, or the database's.
pub fn queue_batch<Zone: TimeZone>(
    ctx: &mut Context,
    text: &str,
    zone: &Zone,
    queued_by: &str,
    check: ClassCheck,
    inserted: &mut dyn FnMut(usize, usize),
) -> EngineResult<Vec<TaskId>> {
    let settings = ctx.store.settings()?;
    let now = ctx.store.now()?.with_timezone(zone);
    let mut tasks = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let task = parse_line(line, queued_by, &now)
            .map_err(EngineError::Input)
            .and_then(|request| check_request(ctx, request, check, &settings))
            .and_then(|task| task.planned(now.with_timezone(&Utc)).map_err(EngineError::Input))
            .map_err(|error| at_line(index + 1, error))?;
        tasks.push(task);
    }
    let total = tasks.len();
    fault_point!("queue.batch_checked");
    Ok(ctx.store.insert_tasks(&tasks, &mut |count| inserted(count, total))?)
}

pub(crate) fn parse_line<Zone: TimeZone>(
    line: &str,
    queued_by: &str,
    now: &DateTime<Zone>,
) -> Result<TaskRequest, String> {
    let line: BatchLine<'_> = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let scheduled_on = match (line.at, line.delay) {
        (Some(_), Some(_)) => return Err("\"at\" and \"in\" exclude each other".to_owned()),
        (Some(at), None) => Some(when::parse_instant(&at, now)?),
        (None, Some(delay)) => Some(when::parse_instant(&format!("+{delay}"), now)?),
        (None, None) => None,
    };
    Ok(TaskRequest {
        class: line.class,
        data: line.data.map(|data| data.get().to_owned()),
        scheduled_on,
        max_retries: line.max_retries,
        timeout_secs: line.timeout.map(|text| timeout_secs(&text)).transpose()?,
        priority: line.priority,
        backoff: line.backoff,
        every: line.every,
        time_zone: line.tz,
        catch_up: line.catch_up,
        queued_by: line.by.unwrap_or_else(|| queued_by.to_owned()),
    })
}

/// Whole seconds of a timeout as it is written, `90s` or `2h`.
///
/// # Errors
/// No duration, or a fraction of a second.
pub fn timeout_secs(text: &str) -> Result<i64, String> {
    let duration = when::parse_duration(text)?;
    if duration.subsec_nanos() != 0 {
        return Err(format!("\"{text}\" has a fraction of a second; a timeout is whole seconds"));
    }
    i64::try_from(duration.as_secs()).map_err(|_| format!("\"{text}\" is too long"))
}

fn at_line(number: usize, error: EngineError) -> EngineError {
    match error {
        EngineError::Input(message) => EngineError::Input(format!("line {number}: {message}")),
        EngineError::UnknownClass { class, nearest } => {
            let hint = nearest.first().map(|name| format!("; did you mean \"{name}\"?")).unwrap_or_default();
            EngineError::Input(format!("line {number}: the task class \"{class}\" is not known here{hint}"))
        }
        EngineError::ExecIsOff => EngineError::Input(format!("line {number}: {}", EngineError::ExecIsOff)),
        other => other,
    }
}

fn check_request(ctx: &Context, request: TaskRequest, check: ClassCheck, settings: &Settings) -> EngineResult<NewTask> {
    let task = request.validate(settings).map_err(EngineError::Input)?;
    let class = task.class.as_str();
    if class == EXEC_CLASS {
        ExecRequest::parse(&task.data).map_err(|problem| EngineError::Input(problem.to_string()))?;
    }
    if check == ClassCheck::KnownHere && ctx.handlers.find(class).is_none() {
        if class == EXEC_CLASS {
            return Err(EngineError::ExecIsOff);
        }
        return Err(EngineError::UnknownClass { class: class.to_owned(), nearest: ctx.handlers.nearest_names(class) });
    }
    Ok(task)
}
