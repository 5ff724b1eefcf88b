//! [`ClaimedRun`] and [`HeldRun`]: a run that a claimant has, and what it reports of it.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::Error;
use super::task_queue::TaskQueue;
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

/// A run that a claimant has just claimed, with all that it needs to work for it. Its methods are those of [`HeldRun`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClaimedRun {
    /// The task; the same for all its attempts.
    pub task_id: TaskId,
    /// Task class.
    pub class: String,
    /// JSON text, as stored.
    pub data: String,
    /// Number of the attempt, from 1.
    pub attempt: i32,
    /// How many attempts may fail before the task is exhausted.
    pub max_retries: i32,
    /// How far each heartbeat moves the deadline.
    pub timeout: Duration,
    /// When another claimant or runner may get the task, unless a heartbeat comes before.
    pub deadline: DateTime<Utc>,
    held: HeldRun,
}

/// A run and the token of its claim: what it takes to report and to end it.
///
/// Each method can be called again after [`Error::Unavailable`]: what was recorded before is recorded once.
#[derive(Clone)]
pub struct HeldRun {
    queue: TaskQueue,
    held: Held,
}

impl ClaimedRun {
    pub(super) fn new(queue: &TaskQueue, offer: Offer) -> Self {
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

    /// Returns the data as a type of Rust.
    ///
    /// # Errors
    /// The JSON is not that of such a value.
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
    pub(super) fn new(queue: &TaskQueue, run_id: RunId, token: String) -> Self {
        Self { queue: queue.clone(), held: Held { run_id, token } }
    }

    /// The run. It grows with every attempt, so it serves as a fence number.
    #[must_use]
    pub fn run_id(&self) -> RunId {
        self.held.run_id
    }

    /// The token of the claim: another process can report and end the run with it, by [`TaskQueue::held_run`], the command line
    /// or SQL.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.held.token
    }

    /// Moves the deadline, and says whether the run is to be cancelled.
    ///
    /// # Errors
    /// [`Error::NotHeld`]: stop working for it. [`Error::NotFound`], or the database's.
    pub fn heartbeat(&self) -> Result<Renewed, Error> {
        self.renew(&ProgressReport::default())
    }

    /// Saves the progress, with a line for people, and moves the deadline. Values outside 0 to 100 are taken as the nearer bound.
    ///
    /// # Errors
    /// As of [`HeldRun::heartbeat`].
    pub fn progress(&self, percents: i32, message: Option<&str>) -> Result<Renewed, Error> {
        self.renew(&ProgressReport { percents: Some(percents.clamp(0, 100)), message: message.map(str::to_owned) })
    }

    /// Answers as [`HeldRun::heartbeat`] does, and moves no deadline.
    ///
    /// # Errors
    /// As of [`HeldRun::heartbeat`].
    pub fn check(&self) -> Result<Renewed, Error> {
        self.queue.with(|ctx| Ok(check(ctx, &self.held)?))
    }

    /// Sends a message that anyone may follow with `taskqueue events`, and moves the deadline.
    ///
    /// # Errors
    /// [`Error::Json`], [`Error::Input`] for a name or data that cannot be kept, and those of [`HeldRun::heartbeat`].
    pub fn emit(&self, name: &str, data: &(impl Serialize + ?Sized)) -> Result<Renewed, Error> {
        let message = Message { name: name.to_owned(), data: serde_json::to_string(data).map_err(Error::Json)? };
        self.queue.with(|ctx| Ok(emit(ctx, &self.held, &message)?))
    }

    /// Ends the run as a success with these results; `&()` leaves none.
    ///
    /// # Errors
    /// [`Error::NotHeld`]: it came too late, and the results are kept as an event. [`Error::Json`], [`Error::Input`] for results
    /// that cannot be stored, [`Error::NotFound`], or the database's.
    pub fn resolve(&self, results: &(impl Serialize + ?Sized)) -> Result<Resolved, Error> {
        self.end(&Resolution::Success(to_results(results)?))
    }

    /// Ends the run as [`HeldRun::resolve`] does, and adds to the metadata of the task, name by name: a map or a struct. Null takes
    /// a name away.
    ///
    /// # Errors
    /// As of [`HeldRun::resolve`]; [`Error::Input`] also for metadata that is no object.
    pub fn resolve_with_meta(
        &self,
        results: &(impl Serialize + ?Sized),
        meta: &(impl Serialize + ?Sized),
    ) -> Result<Resolved, Error> {
        let meta = to_meta(meta)?;
        self.end_with(&Resolution::Success(to_results(results)?), Some(&meta))
    }

    /// Ends the run as failed. The error says whether the task is retried, and when.
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
    /// As of [`HeldRun::resolve`]; [`Error::Input`] for an empty code.
    pub fn fail(&self, error: &HandlerError) -> Result<Resolved, Error> {
        self.end(&failure(error)?)
    }

    /// Ends the run as [`HeldRun::fail`] does, and adds to the metadata of the task as [`HeldRun::resolve_with_meta`] does.
    ///
    /// # Errors
    /// As of [`HeldRun::fail`]; [`Error::Input`] also for metadata that is no object.
    pub fn fail_with_meta(&self, error: &HandlerError, meta: &(impl Serialize + ?Sized)) -> Result<Resolved, Error> {
        let meta = to_meta(meta)?;
        self.end_with(&failure(error)?, Some(&meta))
    }

    /// Rejects the task, for a reason that may be empty: others can try it at once, and this claimant is never offered it again.
    /// The attempt has failed: a task that every claimant rejects is exhausted.
    ///
    /// # Errors
    /// As of [`HeldRun::resolve`].
    pub fn reject(&self, reason: &str) -> Result<Resolved, Error> {
        self.end(&Resolution::Rejection(reason.to_owned()))
    }

    /// Releases the run at no cost, for a reason that may be empty, because the claimant shuts down: no attempt is counted, and
    /// the claimant may be offered the task again.
    ///
    /// # Errors
    /// As of [`HeldRun::resolve`].
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

/// `None` for the results of `()`.
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

/// Without the token, which must not come into logs.
impl fmt::Debug for HeldRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldRun").field("run_id", &self.held.run_id).finish_non_exhaustive()
    }
}
