//! `queue`: validates and inserts tasks (the scheme's queueTask).

use std::time::Duration;

use chrono::{DateTime, TimeZone, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::change::class_exists::check_exists;
use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use crate::handler::exec::ExecRequest;
use crate::handler::handlers::ClassHandler;
use crate::handler::handlers::Handlers;
use taskqueue_domain::run::retention::parse_keep;
use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::dependencies::LineNames;
use taskqueue_domain::task::expiry::Expiry;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::meta::Meta;
use taskqueue_domain::task::new_task::{NewTask, QueueRefusal, TaskRequest};
use taskqueue_domain::task::parent::Parent;
use taskqueue_domain::task::task_class::{EXEC_CLASS, TaskClass};
use taskqueue_domain::task::trace::Trace;
use taskqueue_domain::task::unique::{OnConflict, QueuedTask};
use taskqueue_domain::text::parse_words::json_line_problem;
use taskqueue_domain::time::when;
use taskqueue_host::recent::Recent;
use taskqueue_store::{DatabaseUrl, StoreError};

/// Which classes may be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassCheck {
    /// Classes that this host can execute.
    KnownHere,
    /// Those classes except `exec`, whose data names a program to run.
    NotExec,
    /// Any valid name, because another host may have the class.
    AnyName,
}

/// One line of a batch, as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchLine<'a> {
    class: String,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    at: Option<String>,
    #[serde(rename = "in")]
    delay: Option<String>,
    expires: Option<String>,
    max_retries: Option<i64>,
    timeout: Option<String>,
    priority: Option<i64>,
    backoff: Option<String>,
    every: Option<String>,
    tz: Option<String>,
    catch_up: Option<String>,
    overlap: Option<String>,
    by: Option<String>,
    name: Option<String>,
    after: Option<Vec<Reference>>,
    after_any: Option<Vec<Reference>>,
    unique: Option<String>,
    on_conflict: Option<String>,
    unique_for: Option<String>,
    limit_key: Option<String>,
    tag: Option<String>,
    keep: Option<String>,
    keep_results: Option<String>,
    correlation: Option<String>,
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
}

/// A prerequisite in a line: the id of a task, or the name of another line.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "\"after\" and \"after_any\" must be lists of ids (numbers) and names of other lines (strings)"
)]
enum Reference {
    Id(i64),
    Name(String),
}

/// A parsed line: the task, and its name in the batch.
pub struct ParsedLine {
    /// The task.
    pub request: TaskRequest,
    /// Its name in the batch, and the names that it waits for.
    pub names: LineNames,
}

/// A task that was queued by a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueuedLine {
    /// The task.
    #[serde(flatten)]
    pub task: QueuedTask,
    /// The name of its line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Queues one task and returns its id, or the id of the task that already has its key.
///
/// # Errors
/// Returns [`EngineError::Input`], [`EngineError::UnknownClass`], [`EngineError::ExecIsOff`], [`EngineError::KeyTaken`], or an
/// error if the database fails.
pub fn queue_task(ctx: &mut Context, request: TaskRequest, check: ClassCheck) -> EngineResult<TaskId> {
    Ok(queue_one(ctx, request, check)?.0.id)
}

/// Like [`queue_task`]; also returns whether the task is new, and when it is planned unless that is now.
///
/// # Errors
/// Returns the same errors as [`queue_task`].
pub fn queue_one(
    ctx: &mut Context,
    request: TaskRequest,
    check: ClassCheck,
) -> EngineResult<(QueuedTask, Option<DateTime<Utc>>)> {
    let settings = ctx.store.recent_settings()?;
    let mut task = ctx.admission(check).check(request, &settings)?;
    if task.recurrence.is_some() {
        task = task.planned(ctx.store.now()?).map_err(EngineError::Input)?;
    }
    fault_point!("queue.task_checked");
    let inserted = ctx.store.insert_tasks(std::slice::from_ref(&task), &mut |_| {});
    let queued = inserted.map_err(|error| refused(error).1)?;
    let queued = queued.first().ok_or_else(|| EngineError::Input("the database inserted nothing".to_owned()))?;
    if task.scheduled_on.is_none() {
        wake_workers(ctx);
    }
    Ok((*queued, task.scheduled_on))
}

/// A worker that was woken polls again within milliseconds, so that not every task of a sequence needs a wake-up.
static WOKEN: Recent<DatabaseUrl, ()> = Recent::within(Duration::from_millis(5));

/// Wakes idle workers. Errors are ignored, because the task is queued and workers also poll.
pub(crate) fn wake_workers(ctx: &mut Context) {
    let _ = WOKEN.answer(ctx.store.url().clone(), |_| ctx.store.tell_of_work());
}

/// Queues all of these tasks, or none.
///
/// # Errors
/// Returns the same errors as [`queue_task`]; an error about one of several tasks names its number, from 1.
pub fn queue_all(
    ctx: &mut Context,
    requests: impl IntoIterator<Item = TaskRequest>,
    check: ClassCheck,
) -> EngineResult<Vec<QueuedTask>> {
    let settings = ctx.store.recent_settings()?;
    let mut now = None;
    let mut tasks = Vec::new();
    for (index, request) in requests.into_iter().enumerate() {
        let mut task = ctx.admission(check).check(request, &settings).map_err(|error| at("task", index + 1, error))?;
        if task.recurrence.is_some() {
            let now = *now.get_or_insert(ctx.store.now()?);
            task = task.planned(now).map_err(|what| at("task", index + 1, EngineError::Input(what)))?;
        }
        tasks.push(task);
    }
    let queued = ctx.store.insert_tasks(&tasks, &mut |_| {}).map_err(|error| match refused(error) {
        (Some(index), error) => at("task", index + 1, error),
        (None, error) => error,
    })?;
    wake_workers(ctx);
    Ok(queued)
}

/// Splits an error of the store into the index of the refused task and the reason.
pub(crate) fn refused(error: StoreError) -> (Option<usize>, EngineError) {
    match error {
        StoreError::NotQueued {
            index,
            refusal: taken @ (QueueRefusal::KeyTaken { .. } | QueueRefusal::KeyTakenByHidden { .. }),
        } => (Some(index), EngineError::KeyTaken(taken.to_string())),
        StoreError::NotQueued { index, refusal } => (Some(index), EngineError::Input(refusal.to_string())),
        other => (None, EngineError::Store(other)),
    }
}

impl<'a> BatchLine<'a> {
    /// Reads a line of a batch.
    ///
    /// # Errors
    /// Returns what is wrong with the line, as text to display.
    pub fn read(line: &'a str) -> Result<Self, String> {
        serde_json::from_str(line).map_err(|error| json_line_problem(&error))
    }

    /// Returns true if the task depends on the time at which it is queued.
    #[must_use]
    pub const fn has_time(&self) -> bool {
        self.at.is_some() || self.delay.is_some() || self.expires.is_some() || self.every.is_some()
    }
}

/// Parses the values of a line of a batch. Without a time in it, `now` does not matter.
///
/// # Errors
/// Returns what is wrong with the line, as text to display.
pub fn parse_line<Zone: TimeZone>(
    line: BatchLine<'_>,
    queued_by: &str,
    now: &DateTime<Zone>,
) -> Result<ParsedLine, String> {
    let scheduled_on = match (line.at, line.delay) {
        (Some(_), Some(_)) => return Err("\"at\" and \"in\" exclude each other".to_owned()),
        (Some(at), None) => Some(when::parse_start(&at, now)?),
        (None, Some(delay)) => Some(when::parse_instant(&format!("+{delay}"), now)?),
        (None, None) => None,
    };
    let (after, after_names) = ids_and_names("after", line.after)?;
    let (after_any, after_any_names) = ids_and_names("after_any", line.after_any)?;
    let on_conflict: Option<OnConflict> =
        line.on_conflict.map(|text| text.parse()).transpose().map_err(|what| format!("\"on_conflict\": {what}"))?;
    if on_conflict == Some(OnConflict::Replace) && !(after_names.is_empty() && after_any_names.is_empty()) {
        return Err("\"on_conflict\":\"replace\" and \"after\" exclude each other".to_owned());
    }
    let request = TaskRequest {
        class: line.class,
        data: line.data.map(|data| data.get().to_owned()),
        scheduled_on,
        expires: line
            .expires
            .map(|text| Expiry::parse(&text, now))
            .transpose()
            .map_err(|what| format!("\"expires\": {what}"))?,
        max_retries: line.max_retries,
        timeout_secs: line.timeout.map(|text| timeout_secs(&text)).transpose()?,
        priority: line.priority,
        backoff: line.backoff,
        after,
        after_any,
        unique: line.unique,
        on_conflict,
        limit_key: line.limit_key,
        tag: line.tag,
        name: line.name.clone(),
        keep_secs: line_keep("keep", line.keep.as_deref())?,
        keep_results_secs: line_keep("keep_results", line.keep_results.as_deref())?,
        meta: line_meta(line.meta, line.correlation.as_deref())?,
        parent_id: None,
        unique_for_secs: line.unique_for.map(|text| whole_secs("unique_for", &text)).transpose()?,
        every: line.every,
        time_zone: line.tz,
        catch_up: line.catch_up,
        overlap: line.overlap,
        queued_by: line.by.unwrap_or_else(|| queued_by.to_owned()),
    };
    let names = LineNames { name: line.name, after: after_names, after_any: after_any_names };
    Ok(ParsedLine { request, names })
}

/// Separates the prerequisites of a line: the ids of tasks, and the names of other lines.
fn ids_and_names(key: &str, references: Option<Vec<Reference>>) -> Result<(Vec<TaskId>, Vec<String>), String> {
    let (mut ids, mut names) = (Vec::new(), Vec::new());
    for reference in references.unwrap_or_default() {
        match reference {
            Reference::Id(id) if id > 0 => ids.push(TaskId(id)),
            Reference::Id(id) => return Err(format!("\"{key}\": {id} is not an id: a whole number from 1 on")),
            Reference::Name(name) => names.push(name),
        }
    }
    Ok((ids, names))
}

fn line_keep(key: &str, text: Option<&str>) -> Result<Option<i64>, String> {
    text.map(parse_keep).transpose().map_err(|message| format!("\"{key}\": {message}"))
}

fn line_meta(json: Option<&RawValue>, correlation: Option<&str>) -> Result<Meta, String> {
    let meta = json.map(|json| Meta::parse(json.get())).transpose();
    let mut meta = meta.map_err(|what| format!("\"meta\" {what}"))?.unwrap_or_default();
    let correlation = correlation.map(str::parse).transpose()?;
    Trace { traceparent: None, correlation }.add_to(&mut meta);
    Ok(meta)
}

/// Parses a timeout like `90s` or `2h` into whole seconds.
///
/// # Errors
/// Returns an error if it is no duration, or has a fraction of a second.
pub fn timeout_secs(text: &str) -> Result<i64, String> {
    whole_secs("a timeout", text)
}

/// Parses a duration into whole seconds; `what` names it in the error.
///
/// # Errors
/// Returns an error if it is no duration, or has a fraction of a second.
pub fn whole_secs(what: &str, text: &str) -> Result<i64, String> {
    let duration = when::parse_duration(text)?;
    if duration.subsec_nanos() != 0 {
        return Err(format!("\"{text}\" has a fraction of a second; {what} is whole seconds"));
    }
    i64::try_from(duration.as_secs()).map_err(|_| format!("\"{text}\" is too long"))
}

pub(crate) fn at_line(number: usize, error: EngineError) -> EngineError {
    at("line", number, error)
}

/// Adds the number of the task to an error of one of several tasks.
fn at(what: &str, number: usize, error: EngineError) -> EngineError {
    match error {
        EngineError::Input(message) => EngineError::Input(format!("{what} {number}: {message}")),
        EngineError::Forbidden(message) => EngineError::Forbidden(format!("{what} {number}: {message}")),
        EngineError::KeyTaken(message) => EngineError::KeyTaken(format!("{what} {number}: {message}")),
        EngineError::UnknownClass { class, nearest } => {
            let hint = nearest.first().map(|name| format!("; did you mean \"{name}\"?")).unwrap_or_default();
            EngineError::Input(format!("{what} {number}: the task class \"{class}\" is not known here{hint}"))
        }
        EngineError::ExecIsOff => EngineError::Input(format!("{what} {number}: {}", EngineError::ExecIsOff)),
        other => other,
    }
}

/// The rules for accepting tasks.
#[derive(Clone, Copy)]
pub(crate) struct Admission<'a> {
    pub(crate) handlers: &'a Handlers,
    pub(crate) check: ClassCheck,
    /// The task for which a command inside a run queues.
    pub(crate) parent: Option<&'a Parent>,
}

impl Admission<'_> {
    pub(crate) fn check(&self, request: TaskRequest, settings: &Settings) -> EngineResult<NewTask> {
        let is_known_here = self.check != ClassCheck::AnyName;
        // Before the data: who takes `queue` for `exec` would otherwise learn only that a program is not JSON. A handler learns
        // first what it may queue.
        if is_known_here
            && self.parent.is_none()
            && request.class != EXEC_CLASS
            && let Ok(class) = request.class.parse()
        {
            self.check_known(&class)?;
        }
        let parent_id = self.parent.map(|parent| parent.id).or(request.parent_id);
        let task = TaskRequest { parent_id, ..request }.validate(settings).map_err(EngineError::Input)?;
        self.parent.map_or(Ok(()), |parent| parent.check_task(&task)).map_err(EngineError::Input)?;
        let class = task.class.as_str();
        if class == EXEC_CLASS {
            ExecRequest::parse(&task.data).map_err(|problem| EngineError::Input(problem.to_string()))?;
        }
        if class == EXEC_CLASS && self.check == ClassCheck::NotExec {
            return Err(EngineError::Forbidden("tasks of the class exec need the scope admin".to_owned()));
        }
        if is_known_here {
            self.check_known(&task.class)?;
        }
        if let Some(ClassHandler::Command(configured)) = self.handlers.find(&task.class).filter(|_| is_known_here) {
            check_exists(self.handlers, configured, &task.class)?;
        }
        Ok(task)
    }

    fn check_known(&self, class: &TaskClass) -> EngineResult<()> {
        match self.handlers.find(class) {
            Some(_) => Ok(()),
            None if class.as_str() == EXEC_CLASS => Err(EngineError::ExecIsOff),
            None => {
                let nearest = self.handlers.nearest_names(class.as_str());
                Err(EngineError::UnknownClass { class: class.to_string(), nearest })
            }
        }
    }
}
