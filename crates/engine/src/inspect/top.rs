//! `top`: what a person watches, again and again, and what they change meanwhile. What there are many of is counted so far as
//! `status` counts it, or less far, so that whoever watches costs the others little.

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use super::conditions::Inquiry;
use super::explain::{Explanation, explain_task};
use super::reasons::Reason;
use super::status::{RunnerLine, list_runners};
use crate::change::cancel::cancel_tasks;
use crate::change::pauses::{self, PauseRequest};
use crate::change::retry::retry_tasks;
use crate::change::selected::TaskAnswer;
use crate::{Context, EngineResult};
use taskqueue_domain::pause::{Pause, PauseMode, PauseScope};
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::records::{Run, RunOutput};
use taskqueue_host::clock::Moment;
use taskqueue_store::TaskCounts;
pub use taskqueue_store::{ClassCounts, FailedTask, GivenUp};

/// Runners, runs in progress, failed tasks of each kind, and classes that are shown at the most.
const RUNNERS: i64 = 1_000;
const RUNNING: i64 = 200;
const FAILURES: i64 = 100;
const CLASSES: usize = 50;
/// Ends of tasks in each status that are looked at, and how far back.
const ENDS: i64 = 2_000;
const MINUTE: i64 = 60;
/// What counts as just now.
const LATELY: i64 = 5;
/// How long a question is repeated while the database is away or busy: whoever watches wants to know that. A change waits
/// longer, because it is given but once.
const LOOK: Duration = Duration::from_secs(2);
const CHANGE: Duration = Duration::from_secs(20);

/// What is known at once.
#[derive(Clone, Debug, Serialize)]
pub struct Glance {
    /// The database's clock at that moment.
    pub now: DateTime<Utc>,
    /// Slots of the runners that have not ended, and the limit.
    pub slots: (i64, i64),
    /// What operators have paused.
    pub pauses: Vec<Pause>,
    /// The runners that have not ended.
    pub runners: Vec<RunnerLine>,
    /// Runs in progress, those first that began first.
    pub running: Vec<RunningLine>,
    /// Tasks that failed, those first that failed last.
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
    /// Since when.
    pub started_on: Option<DateTime<Utc>>,
    /// 0 to 100
    pub percents_completed: i32,
    /// What the handler said last.
    pub message: String,
    /// PID of its runner.
    pub process_id: Option<i64>,
    /// The outside worker that claimed it.
    pub claimant: Option<String>,
    /// Where.
    pub host: String,
    /// Whether somebody has asked for its end.
    pub is_to_end: bool,
    /// Why nobody will end it, where that is so: its runner is dead or silent.
    pub lost: Option<String>,
}

/// What has to be counted.
#[derive(Clone, Debug, Serialize)]
pub struct TopCounts {
    /// The counters of `status`.
    pub counts: TaskCounts,
    /// Tasks that were over.
    pub throughput: Throughput,
    /// What there is to do, class by class.
    pub classes: Vec<ClassCounts>,
}

/// Tasks a second that succeeded, or failed for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Throughput {
    /// Within the last seconds.
    pub lately: f64,
    /// Within the last minute.
    pub last_minute: f64,
}

/// Why a task is where it is, and what its newest run wrote.
#[derive(Clone, Debug)]
pub struct Details {
    /// What `explain` says.
    pub explanation: Explanation,
    /// What the handler of the newest run wrote, as far as it is kept.
    pub outputs: Vec<RunOutput>,
}

/// What somebody who watches can do.
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

/// Looks at a database again and again. One that is away is asked anew each time.
pub struct Watch {
    ctx: Context,
    /// When whoever waits has no time any more.
    until: Arc<Mutex<Moment>>,
}

impl Watch {
    /// Of this database.
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

    /// What is known at once.
    ///
    /// # Errors
    /// The database's.
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

    /// What has to be counted. Classes with failed tasks are counted where the glance names one.
    ///
    /// # Errors
    /// The database's.
    pub fn count(&mut self, glance: &Glance) -> EngineResult<TopCounts> {
        let ctx = self.context(LOOK);
        let failing: Vec<String> = glance.failures.iter().map(|task| task.class.clone()).collect();
        let classes = ctx.store.count_by_class(&failing, CLASSES)?;
        let throughput = throughput(ctx)?;
        Ok(TopCounts { counts: ctx.store.count_tasks(None)?, throughput, classes })
    }

    /// Why this task is where it is, and what its newest run wrote.
    ///
    /// # Errors
    /// There is no such task, or the database's.
    pub fn details(&mut self, task_id: TaskId) -> EngineResult<Details> {
        let ctx = self.context(LOOK);
        let explanation = explain_task(ctx, task_id)?;
        let outputs = match &explanation.last_run {
            Some(run) => ctx.store.list_run_outputs(run.id)?,
            None => Vec::new(),
        };
        Ok(Details { explanation, outputs })
    }

    /// Does it, and says what became of it.
    ///
    /// # Errors
    /// Those of the verbs; nothing has changed then, or it is not known.
    pub fn change(&mut self, change: &Change) -> EngineResult<String> {
        let ctx = self.context(CHANGE);
        let mut said = String::new();
        let mut hear = |answer: TaskAnswer| said = answer.message;
        match change {
            Change::Cancel(id) => cancel_tasks(ctx, &[*id], None, &mut hear)?,
            Change::Retry(id) => retry_tasks(ctx, &[*id], &mut hear)?,
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
        let ends = ctx.store.list_newest_ends(status, MINUTE, ENDS)?;
        let are_all = i64::try_from(ends.len()).is_ok_and(|count| count < ENDS);
        all.lately += rate(&ends, are_all, LATELY, now);
        all.last_minute += rate(&ends, are_all, MINUTE, now);
    }
    Ok(all)
}

/// How many a second there were within the last seconds, newest first; where these are not all, within the time that they cover.
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
        // Cut off: they cover two seconds.
        assert!((rate(&ends(2_001, 1), false, 60, now) - 1_000.5).abs() < 1e-9);
        // All at once.
        assert!((rate(&ends(2_000, 0), false, 60, now) - 20_000.0).abs() < 1e-9);
        assert!(rate(&[], true, 60, now).abs() < 1e-9);
    }
}
