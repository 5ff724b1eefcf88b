//! [`ClaimedRun`] and [`HeldRun`]: a run that a claimant holds, and its reports.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::library::error::Error;
use crate::library::task_queue::TaskQueue;
use taskqueue_domain::run::backoff::possible_delay_secs;
use taskqueue_domain::run::ending::ReportedError;
use taskqueue_domain::run::message::Message;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::meta::Meta;
use taskqueue_domain::text::json::check_storable;
use taskqueue_engine::claiming::claim::Offer;
use taskqueue_engine::claiming::claimants::{
    Held, ProgressReport, Renewed, Resolution, Resolved, check, emit, renew, resolve_with,
};
use taskqueue_engine::handler::HandlerError;

/// A newly claimed run with everything that a claimant needs to process it. It also has the methods of [`HeldRun`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClaimedRun {
    /// The id of the task; the same for all its attempts.
    pub task_id: TaskId,
    /// The task class.
    pub class: String,
    /// The data as JSON text, as stored.
    pub data: String,
    /// The number of the attempt, from 1.
    pub attempt: i32,
    /// The number of failed attempts after which the task is exhausted.
    pub max_retries: i32,
    /// How far each heartbeat moves the deadline.
    pub timeout: Duration,
    /// When the lease expires unless a heartbeat renews it.
    pub deadline: DateTime<Utc>,
    held: HeldRun,
}

/// A run and the token of its claim, with which it can be reported on and ended.
///
/// After [`Error::Unavailable`], call the same method again; a result is recorded only once. A message is stored twice if only the
/// answer of the database was lost.
#[derive(Clone)]
pub struct HeldRun {
    queue: TaskQueue,
    held: Held,
}

impl ClaimedRun {
    pub(crate) fn new(queue: &TaskQueue, offer: Offer) -> Self {
        let Offer { run, deadline, timeout_secs, max_retries } = offer;
        Self {
            task_id: run.task_id,
            class: run.class.as_str().to_owned(),
            data: run.data,
            attempt: run.attempt,
            max_retries,
            timeout: Duration::from_secs(timeout_secs.unsigned_abs()),
            deadline,
            held: HeldRun::new(queue, run.run_id, run.token),
        }
    }

    /// Deserializes the data.
    ///
    /// # Errors
    /// Returns an error if the JSON does not fit the type.
    pub fn data_as<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(&self.data)
    }
}

impl Deref for ClaimedRun {
    type Target = HeldRun;

    fn deref(&self) -> &HeldRun {
        &self.held
    }
}

impl HeldRun {
    pub(crate) fn new(queue: &TaskQueue, run_id: RunId, token: String) -> Self {
        Self { queue: queue.clone(), held: Held { run_id, token } }
    }

    /// Returns the id of the run. It grows with every attempt, so it can serve as a fencing token.
    #[must_use]
    pub fn run_id(&self) -> RunId {
        self.held.run_id
    }

    /// Returns the token of the claim. With it another process can report on the run and end it: with [`TaskQueue::held_run`],
    /// the command line or SQL.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.held.token
    }

    /// Renews the deadline. The result contains whether the run was cancelled.
    ///
    /// # Errors
    /// Returns [`Error::NotHeld`] if the claimant no longer has the run: stop processing it. Otherwise returns
    /// [`Error::NotFound`] or an error of the database.
    pub fn heartbeat(&self) -> Result<Renewed, Error> {
        self.renew(&ProgressReport::default())
    }

    /// Saves the progress and a message to display, and renews the deadline. Values outside 0 to 100 are clamped.
    ///
    /// # Errors
    /// Returns the same errors as [`HeldRun::heartbeat`].
    pub fn progress(&self, percents: i32, message: Option<&str>) -> Result<Renewed, Error> {
        self.renew(&ProgressReport { percents: Some(percents.clamp(0, 100)), message: message.map(str::to_owned) })
    }

    /// Returns what [`HeldRun::heartbeat`] would return, without renewing the deadline.
    ///
    /// # Errors
    /// Returns the same errors as [`HeldRun::heartbeat`].
    pub fn check(&self) -> Result<Renewed, Error> {
        self.queue.with(|ctx| Ok(check(ctx, &self.held)?))
    }

    /// Sends a message that anyone may follow with `taskqueue events`, and renews the deadline.
    ///
    /// # Errors
    /// Returns [`Error::Json`], [`Error::Input`] if the name or the data is invalid, or the errors of [`HeldRun::heartbeat`].
    pub fn emit(&self, name: &str, data: &(impl Serialize + ?Sized)) -> Result<Renewed, Error> {
        let message = Message { name: name.to_owned(), data: serde_json::to_string(data).map_err(Error::Json)? };
        self.queue.with(|ctx| Ok(emit(ctx, &self.held, &message)?))
    }

    /// Ends the run as a success with these results; `&()` means no results.
    ///
    /// # Errors
    /// Returns [`Error::NotHeld`] if it was too late; the results are then kept as an event. Otherwise returns [`Error::Json`],
    /// [`Error::Input`] if the results cannot be stored, [`Error::NotFound`], or an error of the database.
    pub fn resolve(&self, results: &(impl Serialize + ?Sized)) -> Result<Resolved, Error> {
        self.end(&Resolution::Success(to_results(results)?))
    }

    /// Ends the run like [`HeldRun::resolve`], and merges a map or a struct into the metadata of the task. A null removes the
    /// name.
    ///
    /// # Errors
    /// Returns the errors of [`HeldRun::resolve`], and [`Error::Input`] if the metadata is not an object.
    pub fn resolve_with_meta(
        &self,
        results: &(impl Serialize + ?Sized),
        meta: &(impl Serialize + ?Sized),
    ) -> Result<Resolved, Error> {
        let meta = to_meta(meta)?;
        self.end_with(&Resolution::Success(to_results(results)?), Some(&meta))
    }

    /// Ends the run as failed. The error sets whether and when the task is retried.
    ///
    /// ```
    /// # use taskqueue::{Claim, HandlerError, NewTask, TaskQueue};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let queue = TaskQueue::connect(&directory.path().join("tasks.db").display().to_string())?;
    /// # let queue = queue.spool(directory.path().join("spool"));
    /// # queue.queue(NewTask::new("mail.send"))?;
    /// for run in queue.claim(&Claim::new("bot-1"))? {
    ///     run.fail(&HandlerError::retry_after(300, "smtp:451", "greylisted"))?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`HeldRun::resolve`], and [`Error::Input`] if the code is empty.
    pub fn fail(&self, error: &HandlerError) -> Result<Resolved, Error> {
        self.end(&failure(error)?)
    }

    /// Ends the run like [`HeldRun::fail`], and changes the metadata like [`HeldRun::resolve_with_meta`].
    ///
    /// # Errors
    /// Returns the errors of [`HeldRun::fail`], and [`Error::Input`] if the metadata is not an object.
    pub fn fail_with_meta(&self, error: &HandlerError, meta: &(impl Serialize + ?Sized)) -> Result<Resolved, Error> {
        let meta = to_meta(meta)?;
        self.end_with(&failure(error)?, Some(&meta))
    }

    /// Rejects the task, for a reason that may be empty. Other claimants may claim it at once, and this one is never offered it
    /// again. The attempt counts as failed, so a task that every claimant rejects becomes exhausted.
    ///
    /// # Errors
    /// Returns the same errors as [`HeldRun::resolve`].
    pub fn reject(&self, reason: &str) -> Result<Resolved, Error> {
        self.end(&Resolution::Rejection(reason.to_owned()))
    }

    /// Releases the run at no cost, for a reason that may be empty, because the claimant shuts down. No attempt is counted, and
    /// the claimant may claim the task again.
    ///
    /// # Errors
    /// Returns the same errors as [`HeldRun::resolve`].
    pub fn release(&self, reason: &str) -> Result<Resolved, Error> {
        self.end(&Resolution::Release(reason.to_owned()))
    }

    fn renew(&self, report: &ProgressReport) -> Result<Renewed, Error> {
        self.queue.with(|ctx| Ok(renew(ctx, &self.held, report)?))
    }

    fn end(&self, resolution: &Resolution) -> Result<Resolved, Error> {
        self.end_with(resolution, None)
    }

    fn end_with(&self, resolution: &Resolution, meta: Option<&Meta>) -> Result<Resolved, Error> {
        self.queue.with(|ctx| Ok(resolve_with(ctx, &self.held, resolution, meta)?))
    }
}

/// Returns `None` for the results `()`.
fn to_results(results: &(impl Serialize + ?Sized)) -> Result<Option<String>, Error> {
    let results = serde_json::to_string(results).map_err(Error::Json)?;
    check_storable(&results).map_err(|what| Error::Input(format!("the result {what}")))?;
    Ok(Some(results).filter(|results| results != "null"))
}

fn to_meta(meta: &(impl Serialize + ?Sized)) -> Result<Meta, Error> {
    let json = serde_json::to_string(meta).map_err(Error::Json)?;
    Meta::parse(&json).map_err(|what| Error::Input(format!("the metadata {what}")))
}

fn failure(error: &HandlerError) -> Result<Resolution, Error> {
    if error.code.trim().is_empty() {
        return Err(Error::Input("the code of the error is empty".to_owned()));
    }
    Ok(Resolution::Error(ReportedError {
        code: error.code.clone(),
        message: error.message.clone(),
        retry: Some(error.retry),
        delay_secs: error.delay_secs.map(possible_delay_secs),
    }))
}

/// Omits the token, which must not appear in logs.
impl fmt::Debug for HeldRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldRun").field("run_id", &self.held.run_id).finish_non_exhaustive()
    }
}
