//! [`Claim`]: which runs to claim; and claiming them.

use std::time::Duration;

use crate::library::claiming::claimed_run::{ClaimedRun, HeldRun};
use crate::library::error::Error;
use crate::library::task_queue::TaskQueue;
use taskqueue_domain::task::choosing::task_choice::TaskChoice;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::task_class::check_class_pattern;
use taskqueue_engine::EngineResult;
use taskqueue_engine::claiming::claim::{ClaimOutcome, ClaimRequest, MAX_COUNT, claim, find_process};
use taskqueue_engine::claiming::take_back::{TakenBack, take_back};

/// Which runs a claimant requests with [`TaskQueue::claim`]. The default is one run of any class, without waiting.
///
/// ```
/// use std::time::Duration;
/// use taskqueue::Claim;
///
/// let claim = Claim::new("bot-1").classes(["mail.*", "sms.send"]).count(10).wait(Duration::from_secs(30));
/// # let _ = claim;
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Claim {
    claimant: String,
    classes: Vec<String>,
    choice: TaskChoice,
    count: usize,
    wait: Duration,
    process: Option<i32>,
}

impl Claim {
    /// Creates a claim by the claimant with this name. A task that it rejects is not offered to this name again.
    pub fn new(claimant: impl Into<String>) -> Self {
        Self {
            claimant: claimant.into(),
            classes: Vec::new(),
            choice: TaskChoice::default(),
            count: 1,
            wait: Duration::ZERO,
            process: None,
        }
    }

    /// Accepts only runs of these classes: names, or patterns with `*` and `?`.
    pub fn classes(mut self, patterns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.classes.extend(patterns.into_iter().map(Into::into));
        self
    }

    /// Accepts only the run of this task.
    pub fn task(mut self, id: TaskId) -> Self {
        self.choice.task = Some(id);
        self
    }

    /// Accepts only runs of tasks with this unique key.
    pub fn unique(mut self, key: impl Into<String>) -> Self {
        self.choice.unique_key = Some(key.into());
        self
    }

    /// Accepts only runs of tasks with this limit key.
    pub fn limit_key(mut self, key: impl Into<String>) -> Self {
        self.choice.limit_key = Some(key.into());
        self
    }

    /// Accepts only runs of tasks with this tag.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.choice.tag = Some(tag.into());
        self
    }

    /// Claims at most this many runs, 1 to 1000.
    pub fn count(mut self, count: usize) -> Self {
        self.count = count;
        self
    }

    /// Waits at most this long for a claimable run, or until a [`StopHandle`](crate::StopHandle) stops it. Does not wait for a
    /// [`task`](Self::task) that has finished or that this claimant has rejected.
    pub fn wait(mut self, time: Duration) -> Self {
        self.wait = time;
        self
    }

    /// Sets the claimant's process on this host, as `claim --process` does. When it is dead, its runs are rescued at once. It
    /// gets TERM when the deadline of a run has passed.
    pub fn process(mut self, pid: i32) -> Self {
        self.process = Some(pid);
        self
    }

    fn to_request(&self) -> EngineResult<Result<ClaimRequest, String>> {
        let process = self.process.map(find_process).transpose()?;
        let checked = || {
            self.classes.iter().try_for_each(|pattern| check_class_pattern(pattern))?;
            self.choice.check()?;
            if !(1..=usize::from(MAX_COUNT)).contains(&self.count) {
                return Err(format!("{} runs cannot be claimed at once; 1 to {MAX_COUNT} can", self.count));
            }
            let (classes, choice) = (self.classes.clone(), self.choice.clone());
            let claimant = self.claimant.parse()?;
            Ok(ClaimRequest { claimant, classes, choice, count: self.count, wait: self.wait, process })
        };
        Ok(checked())
    }
}

impl TaskQueue {
    /// Claims runs for your own worker, as `taskqueue worker claim` does. Returns an empty list if no run was claimable in time,
    /// or if a [`StopHandle`](crate::StopHandle) has stopped this queue.
    ///
    /// Each run has a deadline. Before it passes, report with [`HeldRun::heartbeat`] or [`HeldRun::progress`]. End the run with
    /// [`HeldRun::resolve`], [`HeldRun::fail`], [`HeldRun::reject`] or [`HeldRun::release`]. A run that is only dropped stays
    /// claimed until its deadline.
    ///
    /// ```
    /// # use taskqueue::{Claim, Error, HandlerError, NewTask, TaskQueue};
    /// # fn send(to: &str) -> Result<u32, HandlerError> { Ok(u32::from(to.contains('@'))) }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let queue = TaskQueue::connect(&directory.path().join("tasks.db").display().to_string())?;
    /// # let queue = queue.spool(directory.path().join("spool"));
    /// # queue.queue(NewTask::new("mail.send").data(&"ann@example.org")?)?;
    /// for run in queue.claim(&Claim::new("bot-1").classes(["mail.*"]))? {
    ///     let to: String = run.data_as()?;
    ///     let ended = match send(&to) {
    ///         Ok(sent) => run.resolve(&sent),
    ///         Err(error) => run.fail(&error),
    ///     };
    ///     match ended {
    ///         Err(Error::NotHeld { run, why }) => eprintln!("run {}: the result came too late: {why}", run.id),
    ///         other => println!("run {}: {}", run.run_id(), other?.status),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::Input`] if the claim is invalid, [`Error::NotFound`] if the requested task does not exist, or an error
    /// of the database.
    pub fn claim(&self, claim_of: &Claim) -> Result<Vec<ClaimedRun>, Error> {
        let request = claim_of.to_request()?.map_err(Error::Input)?;
        let stop = &self.shared.stop;
        if stop.is_stopping() {
            return Ok(Vec::new());
        }
        self.with(|ctx| {
            let claimed = claim(ctx, &request, stop);
            // A stopped queue still records how its runs end.
            ctx.store.give_up_when(|| false);
            ctx.spool_problem = None;
            match claimed? {
                ClaimOutcome::Runs(offers) => {
                    Ok(offers.into_iter().map(|offer| ClaimedRun::new(self, offer)).collect())
                }
                ClaimOutcome::Nothing | ClaimOutcome::Stopped => Ok(Vec::new()),
            }
        })
    }

    /// Returns a handle to a run that was claimed elsewhere, such as in an earlier request to a web service. It does not use
    /// the database: for a wrong token, the methods of the handle return an error.
    #[must_use]
    pub fn held_run(&self, run_id: RunId, token: impl Into<String>) -> HeldRun {
        HeldRun::new(self, run_id, token.into())
    }

    /// Takes a run from its claimant before its deadline and at no cost, as `taskqueue worker release --force` does. The claimant
    /// can no longer end it, and gets TERM if its process is on this host. The task is due at once.
    ///
    /// # Errors
    /// Returns [`Error::Refused`] if no claimant has the run, [`Error::NotFound`] if it does not exist, or an error of the
    /// database.
    pub fn take_back(&self, run_id: RunId) -> Result<TakenBack, Error> {
        self.with(|ctx| Ok(take_back(ctx, run_id)?))
    }
}
