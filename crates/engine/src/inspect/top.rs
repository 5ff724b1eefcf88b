//! `top`: what the screen shows and refreshes, and the changes that the user makes. Counts stop at the same limits as in
//! `status` or earlier, so that watching costs little.

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use super::status::{RunnerLine, list_runners};
use crate::change::cancel::cancel_tasks;
use crate::change::pauses::{self, PauseRequest};
use crate::change::retry::{RetryOptions, retry_tasks, retryable};
use crate::change::schedules;
pub use crate::change::schedules::Schedule;
use crate::change::selected::TaskAnswer;
use crate::context::Context;
use crate::error::EngineResult;
use crate::inspect::diagnosis::conditions::Inquiry;
use crate::inspect::diagnosis::explain::{Explanation, explain_task};
use crate::inspect::diagnosis::reasons::Reason;
use taskqueue_domain::limits::pause::{Pause, PauseMode, PauseScope};
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::{Run, RunOutput};
use taskqueue_host::clock::Moment;
use taskqueue_store::TaskCounts;
pub use taskqueue_store::{ClassCounts, FailedTask, FinalCause};

/// The largest numbers of runners, of runs in progress, and of failed tasks and classes to show.
const RUNNERS: i64 = 1_000;
const RUNNING: i64 = 200;
const FAILURES: i64 = 100;
const CLASSES: usize = 50;
const SCHEDULES: usize = 100;
/// How many finished tasks in each status are read, and how far back.
const ENDS: i64 = 2_000;
const MINUTE: i64 = 60;
/// The number of seconds that count as recent.
const LATELY: i64 = 5;
/// How long a query is retried while the database is unreachable or busy: briefly, because the screen must show that. A change
/// is retried for longer, because the user makes it only once.
const LOOK: Duration = Duration::from_secs(2);
const CHANGE: Duration = Duration::from_secs(20);

/// The part of the screen that is read without counting.
#[derive(Clone, Debug, Serialize)]
pub struct Glance {
    /// The time of the database's clock when it was read.
    pub now: DateTime<Utc>,
    /// The slots of runners that have not finished, and the limit.
    pub slots: (i64, i64),
    /// The pauses in effect.
    pub pauses: Vec<Pause>,
    /// The runners that have not finished.
    pub runners: Vec<RunnerLine>,
    /// Runs in progress, oldest first.
    pub running: Vec<RunningLine>,
    /// Failed tasks, the latest failure first.
    pub failures: Vec<FailedTask>,
}

/// A run in progress.
#[derive(Clone, Debug, Serialize)]
pub struct RunningLine {
    /// The run.
    pub run_id: RunId,
    /// Its task.
    pub task_id: TaskId,
    /// Its class.
    pub class: String,
    /// Number of the attempt.
    pub attempt: i32,
    /// When it started.
    pub started_on: Option<DateTime<Utc>>,
    /// 0 to 100.
    pub percents_completed: i32,
    /// The last message of the handler.
    pub message: String,
    /// PID of its runner.
    pub process_id: Option<i64>,
    /// The claimant that has it.
    pub claimant: Option<String>,
    /// The host of its runner or claimant.
    pub host: String,
    /// Whether its end was requested.
    pub is_to_end: bool,
    /// Why its runner or claimant will not end it, if so: it is dead or silent.
    pub lost: Option<String>,
}

/// The part of the screen that must be counted.
#[derive(Clone, Debug, Serialize)]
pub struct TopCounts {
    /// The counters of `status`.
    pub counts: TaskCounts,
    /// Finished tasks per second.
    pub throughput: Throughput,
    /// Waiting and running work of each class.
    pub classes: Vec<ClassCounts>,
    /// The first schedules, those with problems first.
    pub schedules: Vec<Schedule>,
}

/// Tasks per second that succeeded, or failed without a retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Throughput {
    /// Over the last seconds.
    pub lately: f64,
    /// Over the last minute.
    pub last_minute: f64,
}

/// The explanation of a task and the output of its newest run.
#[derive(Clone, Debug)]
pub struct Details {
    /// The result of `explain`.
    pub explanation: Explanation,
    /// The captured output of its newest run.
    pub outputs: Vec<RunOutput>,
}

/// A change that the user can make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// `cancel`
    Cancel(TaskId),
    /// `retry`
    Retry(TaskId),
    /// `pause`
    Pause(PauseScope),
    /// `resume`
    Resume(PauseScope),
}

/// Reads a database repeatedly. After a lost connection, each read connects again.
pub struct TopWatch {
    ctx: Context,
    /// When the current read or change must give up.
    until: Arc<Mutex<Moment>>,
}

impl TopWatch {
    /// Creates a watch of this database.
    #[must_use]
    pub fn new(mut ctx: Context) -> Self {
        let until = Arc::new(Mutex::new(Moment::now()));
        let seen = Arc::clone(&until);
        ctx.store.wait_silently();
        ctx.store.give_up_when(move || seen.lock().unwrap_or_else(PoisonError::into_inner).has_passed());
        Self { ctx, until }
    }

    fn context(&mut self, patience: Duration) -> &mut Context {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Moment::after(patience);
        &mut self.ctx
    }

    /// Reads the part of the screen that needs no counting.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub fn look(&mut self) -> EngineResult<Glance> {
        let ctx = self.context(LOOK);
        let now = ctx.store.now()?;
        let runners = list_runners(ctx, RUNNERS, true)?;
        let in_use = runners.iter().map(|line| i64::from(line.runner.slots)).sum();
        let limit = i64::from(ctx.store.settings()?.runner_limit);
        let pauses = ctx.store.list_pauses()?;
        let (running, failures) = (list_running(ctx, now)?, list_failures(ctx)?);
        Ok(Glance { now, slots: (in_use, limit), pauses, runners, running, failures })
    }

    /// Reads the part of the screen that must be counted. Classes with failed tasks are counted if the glance contains one.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub fn count(&mut self, glance: &Glance) -> EngineResult<TopCounts> {
        let ctx = self.context(LOOK);
        let failing: Vec<String> = glance.failures.iter().map(|task| task.class.clone()).collect();
        let classes = ctx.store.count_by_class(&failing, CLASSES)?;
        let throughput = throughput(ctx)?;
        let mut schedules = schedules::list(ctx)?;
        schedules.truncate(SCHEDULES);
        Ok(TopCounts { counts: ctx.store.count_tasks(None)?, throughput, classes, schedules })
    }

    /// Returns the explanation of a task and the output of its newest run.
    ///
    /// # Errors
    /// Returns an error if there is no such task, or if the database fails.
    pub fn details(&mut self, task_id: TaskId) -> EngineResult<Details> {
        let ctx = self.context(LOOK);
        let explanation = explain_task(ctx, task_id)?;
        let outputs = match &explanation.last_run {
            Some(run) => ctx.store.list_run_outputs(run.id)?,
            None => Vec::new(),
        };
        Ok(Details { explanation, outputs })
    }

    /// Makes a change and returns a message about it.
    ///
    /// # Errors
    /// Returns the errors of the verbs; then nothing has changed, or the result is unknown.
    pub fn change(&mut self, change: &Change) -> EngineResult<String> {
        let ctx = self.context(CHANGE);
        let mut said = String::new();
        let mut hear = |answer: TaskAnswer| said = answer.message;
        match change {
            Change::Cancel(id) => cancel_tasks(ctx, &[*id], None, &mut hear)?,
            Change::Retry(id) => {
                // It may have succeeded since the screen was drawn.
                let options = RetryOptions { only: &retryable(false), ..RetryOptions::default() };
                retry_tasks(ctx, &[*id], &options, &mut hear)?;
            }
            Change::Pause(scope) => {
                let (scope, mode, reason) = (scope.clone(), PauseMode::Pause, String::new());
                pauses::pause(ctx, PauseRequest { scope, mode, reason, duration: None })?;
            }
            Change::Resume(scope) => {
                if !pauses::resume(ctx, scope)? {
                    return Ok(format!("{scope} was not paused"));
                }
            }
        }
        Ok(match change {
            Change::Cancel(_) | Change::Retry(_) => said,
            Change::Pause(scope) => format!("{scope} is paused"),
            Change::Resume(scope) => format!("{scope} is resumed"),
        })
    }
}

fn list_running(ctx: &mut Context, now: DateTime<Utc>) -> EngineResult<Vec<RunningLine>> {
    let runs = ctx.store.list_processing_runs(None, RUNNING)?;
    let lost = Inquiry::new(ctx, now).lost_runs()?;
    let mut lines: Vec<RunningLine> = runs.into_iter().map(running_line).collect();
    for line in &mut lines {
        line.lost = lost.iter().find_map(|(task_id, why)| match why {
            Reason::Lost { message, .. } if *task_id == line.task_id => Some(message.clone()),
            _ => None,
        });
    }
    lines.sort_by_key(|line| (line.started_on, line.run_id));
    Ok(lines)
}

fn running_line(run: Run) -> RunningLine {
    RunningLine {
        run_id: run.id,
        task_id: run.task_id,
        class: run.class.to_string(),
        attempt: run.attempt,
        started_on: run.started_on,
        percents_completed: run.percents_completed,
        message: run.progress_message,
        process_id: run.process_id,
        claimant: run.claimant,
        host: run.host,
        is_to_end: run.cancel_requested_on.is_some(),
        lost: None,
    }
}

fn list_failures(ctx: &mut Context) -> EngineResult<Vec<FailedTask>> {
    let mut failures = ctx.store.list_failed_tasks(TaskStatus::Failed, None, FAILURES)?;
    failures.extend(ctx.store.list_failed_tasks(TaskStatus::Timeout, None, FAILURES)?);
    failures.sort_by_key(|task| Reverse((task.failed_on, task.task_id)));
    Ok(failures)
}

fn throughput(ctx: &mut Context) -> EngineResult<Throughput> {
    let now = ctx.store.now()?;
    let mut all = Throughput::default();
    for status in [TaskStatus::Success, TaskStatus::Failed, TaskStatus::Timeout] {
        let ended = ctx.store.list_newest_ended(status, MINUTE, ENDS)?;
        let ends: Vec<DateTime<Utc>> = ended.into_iter().map(|(on, _)| on).collect();
        let are_all = i64::try_from(ends.len()).is_ok_and(|count| count < ENDS);
        all.lately += rate(&ends, are_all, LATELY, now);
        all.last_minute += rate(&ends, are_all, MINUTE, now);
    }
    Ok(all)
}

/// Returns the rate per second over the last `secs` seconds. If `ends`, newest first, was cut off, it is the rate over the time
/// that they cover.
fn rate(ends: &[DateTime<Utc>], are_all: bool, secs: i64, now: DateTime<Utc>) -> f64 {
    const SHORTEST: TimeDelta = TimeDelta::milliseconds(100);
    let mut window = TimeDelta::seconds(secs);
    if let Some(oldest) = ends.last().filter(|_| !are_all) {
        window = (now - *oldest).clamp(SHORTEST, window);
    }
    let count = ends.iter().filter(|end| now - **end <= window).count();
    let as_number = |number: i64| f64::from(i32::try_from(number).unwrap_or(i32::MAX));
    as_number(i64::try_from(count).unwrap_or(i64::MAX)) * 1_000.0 / as_number(window.num_milliseconds())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_its_window_or_of_the_time_that_the_newest_ends_cover() {
        let now = DateTime::UNIX_EPOCH + TimeDelta::days(20_000);
        let ends = |count: i32, every_millis: i32| -> Vec<DateTime<Utc>> {
            (0..count).map(|place| now - TimeDelta::milliseconds(i64::from(place * every_millis))).collect()
        };
        assert!((rate(&ends(10, 10_000), true, 60, now) - 7.0 / 60.0).abs() < 1e-9);
        assert!((rate(&ends(50, 100), true, 5, now) - 10.0).abs() < 1e-9);
        // Cut off: these ends cover two seconds.
        assert!((rate(&ends(2_001, 1), false, 60, now) - 1_000.5).abs() < 1e-9);
        // All ends at the same time.
        assert!((rate(&ends(2_000, 0), false, 60, now) - 20_000.0).abs() < 1e-9);
        assert!(rate(&[], true, 60, now).abs() < 1e-9);
    }
}
